"""`manage.py record_verify` and `record_rebuild`."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from tests.server.cast import Api, Company


def act(agent: Api) -> None:
    """One finished action."""
    token = "ab" * 16
    claimed = agent.post("effects/claim", {"run": "order-1", "tool": "pay", "arguments": {"amount": 10}, "token": token})
    agent.post(f"effects/{claimed.json['key']}/complete", {"run": "order-1", "token": token, "result_codec": '"paid"'})


def said(command: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(command, stdout=out)
    return out.getvalue()


def test_a_record_as_written_verifies(agent: Api) -> None:
    act(agent)

    assert "as it was written" in said("record_verify")


def test_a_head_set_by_hand_is_found_and_folded_anew(agent: Api, acme: Company) -> None:
    act(agent)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE c4a_effect SET state = 'not_done'")

    with pytest.raises(CommandError, match="1 findings"):
        said("record_verify")
    assert acme.organization.id in said("record_rebuild")

    assert "as it was written" in said("record_verify")
