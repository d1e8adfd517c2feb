"""Logs: one line an event, no secret in it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from c4a_project.logs import JsonLine, MaskSecrets, masked


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("key c4a_abcd2345_SuperSecretPartOfTheKey12345", "SuperSecret"),
        ("Authorization: Bearer c4a_abcd2345_SuperSecretPartOfTheKey12345", "SuperSecret"),
        ("Authorization: Basic c3VwZXI6c2VjcmV0cGFydA==", "c3VwZXI6"),
        ("GET /sign-in/link/SuperSecretLink_0123 HTTP/1.1", "SuperSecret"),
        ("postgresql://c4a:SuperSecret@db.example:5432/c4a", "SuperSecret"),
        ("redis://:SuperSecret@cache.example/0", "SuperSecret"),
        ('{"password": "SuperSecret"}', "SuperSecret"),
        ("token=SuperSecret&x=1", "SuperSecret"),
    ],
)
def test_it_masks_what_is_secret(text: str, secret: str) -> None:
    assert secret not in masked(text)
    assert "***" in masked(text)


def test_it_leaves_the_rest() -> None:
    text = "pay is in doubt in run r1 (key 12562dee4675c8161aed828832a4dca4)"
    assert masked(text) == text


def test_it_masks_arguments_extra_fields_and_tracebacks() -> None:
    try:
        raise ValueError("bad key c4a_abcd2345_SuperSecretPartOfTheKey12345")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "saw %s", ("password=SuperSecret",), sys.exc_info())
    record.url = "redis://:SuperSecret@cache.example/0"
    MaskSecrets().filter(record)
    line = JsonLine().format(record)
    assert "SuperSecret" not in line
    read = json.loads(line)
    assert (read["level"], read["logger"]) == ("error", "x")
    assert "ValueError" in read["error"]
