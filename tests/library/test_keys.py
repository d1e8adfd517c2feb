"""Digests, keys and identifiers."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from c4a.canonical import canonical_text, encode_arguments
from c4a.errors import InvalidArguments
from c4a.keys import (
    call_digest,
    effect_key,
    explicit_key_text,
    identifier,
    new_token,
    outside_key,
    payload_digest,
    token_hash,
    undo_key,
)
from tests.library.values import plain_values, texts

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "keys.json").read_text())


def test_digests_and_keys_are_the_vectors() -> None:
    for vector in VECTORS["call_digest"]:
        assert hashlib.sha256(vector["text"].encode()).hexdigest() == vector["sha256"]
        assert call_digest(vector["tool"], vector["arguments"]) == vector["sha256"]
    for vector in VECTORS["effect_key"]:
        given_names = {name: vector[name] for name in ("arguments", "explicit_key")}
        assert effect_key(vector["organization"], vector["run"], vector["tool"], **given_names) == vector["sha256"]
    for vector in VECTORS["undo_key"]:
        assert undo_key(vector["key"]) == vector["sha256"]
    for vector in VECTORS["outside_key"]:
        assert outside_key(vector["key"], vector["epoch"], undo=vector["undo"]) == vector["uuid"]
        assert outside_key(vector["key"], vector["epoch"], undo=vector["undo"], form="hex") == vector["sha256"]


@given(texts, texts, texts, st.dictionaries(texts, plain_values, max_size=3))
def test_joined_texts_are_the_canonical_texts_of_the_whole(organization: str, run: str, tool: str, arguments: dict[str, Any]) -> None:
    """The slow way: one object, written as a whole (its own keys need no tag, so its arguments stand in it as they are)."""
    text = encode_arguments(arguments)[0]
    call = canonical_text({"tool": tool, "args": arguments})
    assert call_digest(tool, text) == hashlib.sha256(f"c4a/call/v1\n{call}".encode()).hexdigest()
    effect = canonical_text({"org": organization, "run": run, "tool": tool, "args": arguments})
    assert effect_key(organization, run, tool, arguments=text) == hashlib.sha256(f"c4a/effect/v1\n{effect}".encode()).hexdigest()
    explicit = rfc8785.dumps({"org": organization, "run": run, "tool": tool, "explicit_key": "k"})
    assert effect_key(organization, run, tool, explicit_key="k") == hashlib.sha256(b"c4a/effect/v1\n" + explicit).hexdigest()


def test_every_part_of_an_effect_makes_another_key() -> None:
    keys = [
        effect_key("o", "r", "t", arguments='{"a":1}'),
        effect_key("o2", "r", "t", arguments='{"a":1}'),
        effect_key("o", "r2", "t", arguments='{"a":1}'),
        effect_key("o", "r", "t2", arguments='{"a":1}'),
        effect_key("o", "r", "t", arguments='{"a":2}'),
        effect_key("o", "r", "t", explicit_key="a"),
        effect_key("o", "r", "t2", explicit_key="a"),
        effect_key("o", "r", "t", explicit_key='{"a":1}'),
        effect_key("r", "o", "t", arguments='{"a":1}'),
        call_digest("t", '{"a":1}'),
        undo_key(effect_key("o", "r", "t", explicit_key="a")),
    ]
    assert len(set(keys)) == len(keys)


def test_an_effect_key_takes_arguments_or_an_explicit_key() -> None:
    for wrong in ({}, {"arguments": "{}", "explicit_key": "k"}):
        with pytest.raises(TypeError, match="either"):
            effect_key("o", "r", "t", **wrong)


def test_a_name_that_utf_8_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="surrogate"):
        call_digest("\ud800", "{}")


# ---- the outside key


def test_the_outside_key_is_a_uuid_of_version_8_and_differs_by_epoch_and_undo() -> None:
    made = {outside_key(key, epoch, undo=undo) for key in ("a", "b") for epoch in (0, 1, 11) for undo in (False, True)}
    assert len(made) == 12
    for text in made:
        assert (len(text), uuid.UUID(text).version, uuid.UUID(text).variant) == (36, 8, uuid.RFC_4122)
    assert outside_key("a") == outside_key("a", 0)


def test_the_outside_key_takes_the_form_a_service_needs() -> None:
    assert len(outside_key("a", form="hex")) == 64
    assert outside_key("a", form="hex", max=30) == outside_key("a", form="hex")[:30]
    assert len(outside_key("a", form="base32")) == 52
    assert len(outside_key("a", form="base32", max=16)) == 16
    assert outside_key("a", max=36) == outside_key("a")


@pytest.mark.parametrize("wrong", [{"form": "dec"}, {"max": 35}, {"form": "hex", "max": 19}, {"form": "base32", "max": 15}])
def test_an_outside_key_that_could_coincide_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        outside_key("a", **wrong)


# ---- explicit keys and identifiers


def test_c_b4_seven_and_its_text_are_one_explicit_key() -> None:
    assert explicit_key_text(7) == explicit_key_text("7") == "7"
    assert explicit_key_text(-7) == "-7"
    assert explicit_key_text(" 7") == " 7"
    assert explicit_key_text("07") == "07"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        "\n\t",
        None,
        True,
        False,
        7.0,
        b"7",
        ["7"],
        "a\0b",
        "\ud800",
        "x" * 257,
        "é" * 129,
        pytest.param(10**300, id="long int"),
        pytest.param(10**100_000, id="huge int"),
    ],
)
def test_case_8_a_missing_blank_or_odd_explicit_key_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArguments) as caught:
        explicit_key_text(wrong)
    assert caught.value.parameter == "key"
    str(caught.value).encode()


@pytest.mark.parametrize("wrong", ["", "  ", None, 7, b"run", "a\0", "\udfff", "x" * 257, "é" * 129])
def test_an_identifier_every_database_can_hold(wrong: object) -> None:
    with pytest.raises(InvalidArguments, match="run: expected") as caught:
        identifier(wrong, "run")
    assert caught.value.parameter == "run"


def test_an_identifier_is_kept_as_it_is() -> None:
    for name in ("a", " spaced ", "é" * 128, "x" * 256, "a\nb"):
        assert identifier(name, "run") == name


# ---- tokens and payloads


def test_tokens_are_random_and_only_their_hash_is_kept() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)
    assert token_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_payload_digest_is_over_salt_and_text() -> None:
    assert payload_digest("a", "bc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
