"""Asking people from an agent: one question an action, whatever runs again, and an answer that reaches exactly that action."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import c4a
from tests.library.conftest import Library

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@c4a.effect(approval=True)
def send(to: str, amount: Decimal = Decimal(1), on: date | None = None) -> str:
    """Needs a yes."""
    sent.append(to)
    return f"sent to {to}"


@c4a.effect(approval="wait")
def send_waiting(to: str) -> str:
    """Waits for a yes."""
    sent.append(to)
    return f"sent to {to}"


@c4a.effect(approval="wait")
async def send_async(to: str) -> str:
    """Waits for a yes on an event loop."""
    sent.append(to)
    return f"sent to {to}"


@c4a.effect(approval="ticket")
def send_asking(to: str) -> str:
    """Says whom it asked."""
    sent.append(to)
    return f"sent to {to}"


def soon(deed: Callable[[], object], seconds: float = 0.2) -> threading.Thread:
    """Do it in another thread in a moment."""
    thread = threading.Timer(seconds, deed)
    thread.start()
    return thread


def answer_when_asked(answer: Any, **options: Any) -> threading.Thread:
    """A person who answers the first open ticket as soon as there is one."""

    def person() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for ticket in c4a.tickets():
                c4a.decide(ticket.text, answer, by="ann", **options)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=person)
    thread.start()
    return thread


def test_shown_values_and_typed_ones_are_one_question(library: Library) -> None:
    with c4a.run("r"):
        shown = c4a.pause(send, to="alice", amount="10.00", on="2025-01-01")
        typed = c4a.pause(send, to="alice", amount=Decimal(10), on=date(2025, 1, 1))
        assert shown == typed
        c4a.decide(shown, "approve", by="ann")
        assert send("alice", Decimal("10.0"), date(2025, 1, 1)) == "sent to alice"


def test_a_question_is_listed_in_full(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice", why="the invoice is due", ttl=60)
        (ticket,) = c4a.tickets(run="r")
    assert ticket.text == text
    assert json.loads(ticket.arguments or "") == {"to": "alice", "amount": 1, "on": None}
    assert ticket.why == "the invoice is due"
    assert ticket.expires_at - ticket.asked_at == pytest.approx(60_000_000, abs=1_000_000)
    assert c4a.tickets(run="another") == []


def test_c_b7_parameters_named_as_c4as_own_options_are_the_tools(library: Library) -> None:
    @c4a.effect(approval=True)
    def ban(tool: str, ttl: int, why: str, again: bool, key: str) -> int:
        return ttl

    shown: dict[str, Any] = {"tool": "hammer", "ttl": 60, "why": "spam", "again": True, "key": "k"}
    with c4a.run("r"):
        text = c4a.pause(ban, **shown, c4a_ttl=30, c4a_why="he spams")
        (ticket,) = c4a.tickets()
        c4a.decide(text, "approve")
        with pytest.raises(c4a.ApprovalRequired):
            ban("hammer", 3600, "spam", True, "k")
        assert ban(**shown) == 60
    assert json.loads(ticket.arguments or "") == shown
    assert ticket.why == "he spams"


def test_a_tool_that_needs_no_approval_is_not_asked_about(library: Library) -> None:
    @c4a.effect
    def act() -> None: ...

    with c4a.run("r"), pytest.raises(c4a.InvalidArguments, match="a no would not stop it"):
        c4a.pause(act)


@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": "1"}, {"ttl": True}, {"ttl": float("inf")}, {"why": 7}, {"again": 1}])
def test_an_unfit_option_is_refused_and_nobody_is_asked(library: Library, options: dict[str, Any]) -> None:
    with c4a.run("r"), pytest.raises(c4a.InvalidArguments):
        c4a.pause(send, to="alice", **options)
    assert c4a.tickets() == []


def test_an_incomplete_question_is_refused(library: Library) -> None:
    with c4a.run("r"), pytest.raises(c4a.InvalidArguments, match="missing: to"):
        c4a.pause(send)


def test_the_refused_call_names_the_open_ticket(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        with pytest.raises(c4a.ApprovalRequired) as caught:
            send("alice")
        with pytest.raises(c4a.ApprovalRequired) as other:
            send("bob")
    assert caught.value.ticket == text
    assert "ticket" not in other.value.fields


def test_a_tool_that_asks_opens_one_ticket_and_says_which(library: Library) -> None:
    with c4a.run("r"):
        texts = []
        for _ in range(3):
            with pytest.raises(c4a.ApprovalRequired) as caught:
                send_asking("alice")
            texts.append(caught.value.ticket)
        assert len(set(texts)) == 1
        c4a.decide(texts[0], "approve", by="ann")
        assert send_asking("alice") == "sent to alice"
        assert send_asking("alice") == "sent to alice"
    assert sent == ["alice"]


def test_case_77_a_no_reaches_the_agent_with_its_exact_reason(library: Library) -> None:
    with c4a.run("r"):
        c4a.decide(c4a.pause(send, to="alice"), "deny", by="ann", reason="wrong IBAN é😀")
        with pytest.raises(c4a.ApprovalDenied) as caught:
            send("alice")
    child = library.start(
        """
        @c4a.effect(approval=True, name="tests.library.test_tickets.send")
        def send(to: str, amount: int = 1, on: None = None) -> str:
            say("ran")

        with c4a.run("r"):
            try:
                send("alice")
            except c4a.ApprovalDenied as denied:
                say(ascii(denied.reason) + " not executed" * ("not executed" in str(denied)))
        """
    )
    assert (caught.value.reason, caught.value.by) == ("wrong IBAN é😀", "ann")
    assert child.communicate(timeout=30)[0].strip() == ascii("wrong IBAN é😀") + " not executed"
    assert sent == []


def test_case_25_a_no_holds_on_resume_retry_and_in_another_worker(library: Library) -> None:
    with c4a.run("r"):
        c4a.decide(c4a.pause(send, to="alice"), "deny", by="ann")
        for _ in range(2):
            with pytest.raises(c4a.ApprovalDenied):
                send("alice")

    def worker() -> None:
        with c4a.run("r"), pytest.raises(c4a.ApprovalDenied):
            send("alice")

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    library.init()
    with c4a.run("r"), pytest.raises(c4a.ApprovalDenied):
        send("alice")
    assert sent == []


def test_case_27_a_denied_original_does_not_run_beside_the_edited_call(library: Library) -> None:
    with c4a.run("r"):
        original = c4a.pause(send, to="a@x")
        c4a.decide(original, "deny", by="ann", reason="send it to b@x")
        c4a.decide(c4a.pause(send, to="b@x"), "approve", by="ann")
        assert send("b@x") == "sent to b@x"
        with pytest.raises(c4a.ApprovalDenied, match="send it to b@x"):
            send("a@x")
    assert sent == ["b@x"]


def test_case_28_what_a_client_says_about_a_decision_is_no_decision(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        for forged in (json.dumps({"ticket": text, "approved": True}), text + "0", text.replace("c4a1.", "c4a1.tkt_")):
            with pytest.raises(c4a.TicketRefused):
                c4a.decide(forged, "approve")
        with pytest.raises(c4a.C4AError):
            c4a.decide(text, "approved")  # type: ignore[arg-type]
        c4a.decide(text, "approve", by="ann")
        with pytest.raises(c4a.ApprovalRequired):
            send("alice", Decimal(2))
    assert sent == []


def test_case_29_an_old_yes_gives_no_new_action_in_a_later_turn(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        c4a.decide(text, "approve", by="ann")
        for _ in range(3):  # the whole history comes again: pause, answer, call
            assert c4a.pause(send, to="alice") == text
            c4a.decide(text, "approve", by="ann")
            assert send("alice") == "sent to alice"
    assert sent == ["alice"]


def test_case_31_silence_is_told_as_silence(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice", ttl=0.1)
        assert c4a.wait(text, timeout=10).state == "expired"
        with pytest.raises(c4a.ApprovalExpired, match="nobody answered"):
            send("alice")
        with pytest.raises(c4a.TicketRefused) as caught:
            c4a.decide(text, "approve", by="ann")
        assert caught.value.why == "expired"
        assert c4a.pause(send, to="alice") != text
    assert sent == []


def test_waiting_is_woken_by_the_answer(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        person = soon(lambda: c4a.decide(text, "deny", by="ann", reason="no"))
        began = time.monotonic()
        found = c4a.wait(text, timeout=30)
        person.join()
    assert (found.state, found.decided_by, found.reason) == ("denied", "ann", "no")
    assert time.monotonic() - began < 5


def test_waiting_ends_with_its_time_and_the_ticket_stays_open(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        assert c4a.wait(text, timeout=0.05).state == "open"
    with pytest.raises(c4a.InvalidArguments):
        c4a.wait(text, timeout=-1)


def test_a_call_that_waits_runs_once_it_is_approved(library: Library) -> None:
    person = answer_when_asked("approve")
    with c4a.run("r"):
        assert send_waiting("alice") == "sent to alice"
        assert send_waiting("alice") == "sent to alice"
    person.join()
    assert sent == ["alice"]
    assert c4a.tickets() == []


def test_a_call_that_waits_raises_the_no(library: Library) -> None:
    person = answer_when_asked("deny", reason="not today")
    with c4a.run("r"), pytest.raises(c4a.ApprovalDenied, match="not today"):
        send_waiting("alice")
    person.join()
    assert sent == []


def test_a_call_that_waits_on_an_event_loop_leaves_the_loop_free(library: Library) -> None:
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def agent() -> str:
        ticking = asyncio.ensure_future(tick())
        with c4a.run("r"):
            answer = await send_async("alice")
        ticking.cancel()
        return answer

    person = answer_when_asked("approve")
    assert asyncio.run(agent()) == "sent to alice"
    person.join()
    assert sent == ["alice"]
    assert len(ticks) > 1


def test_a_call_that_waits_is_told_that_nobody_answered_or_that_it_was_taken_back(library: Library) -> None:
    tool = "tests.library.test_tickets.send_waiting"
    with c4a.run("r"):
        c4a.pause(send_waiting, to="alice", ttl=0.3)
        with pytest.raises(c4a.ApprovalExpired, match=f"{tool} was not executed: nobody answered"):
            send_waiting("alice")
        text = c4a.pause(send_waiting, to="bob")
        person = soon(lambda: c4a.cancel(text, by="ann"))
        with pytest.raises(c4a.ApprovalRequired, match="ann took the question back"):
            send_waiting("bob")
        person.join()
    assert sent == []


def test_a_yes_given_without_the_ticket_ends_the_waiting_too(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("c4a.invocation.TICKET_SLICE_SECONDS", 0.1)

    def person() -> None:
        with c4a.run("r"):
            c4a.approve(send_waiting, to="alice")

    thread = soon(person)
    with c4a.run("r"):
        assert send_waiting("alice") == "sent to alice"
    thread.join()


def test_a_yes_withdrawn_before_the_call_is_asked_for_anew(library: Library) -> None:
    with c4a.run("r"):
        text = c4a.pause(send, to="alice")
        c4a.decide(text, "approve", by="ann")
        c4a.withdraw(text, by="bob", reason="wrong amount")
        with pytest.raises(c4a.ApprovalRequired):
            send("alice")
        assert c4a.pause(send, to="alice") != text
        yes = c4a.approve(send, to="bob")
        c4a.withdraw(yes)
        with pytest.raises(c4a.ApprovalRequired):
            send("bob")
    with pytest.raises(c4a.NoCurrentRun):
        c4a.withdraw(yes)
    assert sent == []


def test_a_call_that_waits_asks_anew_when_its_yes_went_to_another_key(library: Library) -> None:
    """A yes that names no key covers one action under any key; the next one needs its own."""
    with c4a.run("r"):
        text = c4a.pause(send_asking, to="alice")
        c4a.decide(text, "approve", by="ann")
        assert send_asking("alice", c4a_key="other") == "sent to alice"  # type: ignore[call-arg]
        with pytest.raises(c4a.ApprovalRequired) as caught:
            send_asking("alice")
        assert caught.value.ticket != text
        c4a.decide(caught.value.ticket, "approve", by="ann")
        assert send_asking("alice") == "sent to alice"
    assert sent == ["alice", "alice"]


AGENT_CODE = """
import json
from pathlib import Path

@c4a.effect(approval=True, name="pay")
def pay(amount: int, to: str) -> str:
    with open("paid", "a") as file:
        file.write(f"{amount} to {to}\\n")
    return "paid"

# The whole function runs again in each process, as a graph's node does after an interrupt; only its state is kept.
state = json.loads(Path("state.json").read_text()) if Path("state.json").exists() else {}
with c4a.run("thread-1"):
    ticket = c4a.pause(pay, amount=10, to="alice")
    state.setdefault("tickets", []).append(ticket)
    found = c4a.wait(ticket, timeout=0)
    Path("state.json").write_text(json.dumps(state))
    if found.state == "open":
        say("interrupted")
    else:
        try:
            say(pay(amount=10, to="alice"))
        except c4a.ApprovalDenied as denied:
            say(f"refused: {denied.reason}")
"""


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_case_38_a_flow_that_begins_again_in_new_processes_asks_once(library: Library, answer: Any) -> None:
    def node() -> str:
        return library.start(AGENT_CODE).communicate(timeout=60)[0].strip()

    assert [node(), node()] == ["interrupted", "interrupted"]
    (ticket,) = c4a.tickets()
    c4a.decide(ticket.text, answer, by="ann", reason="over budget")
    told = {"approve": "paid", "deny": "refused: over budget"}[answer]

    assert [node(), node()] == [told, told]
    assert set(json.loads((library.folder / "state.json").read_text())["tickets"]) == {ticket.text}
    paid = library.folder / "paid"
    assert (paid.read_text() if paid.exists() else "") == ("10 to alice\n" if answer == "approve" else "")
    assert library.record.verify() == []


def test_over_a_server_an_agents_key_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from c4a.record.http import ServerRecord

    record = ServerRecord.__new__(ServerRecord)
    for deed in (lambda: record.decide("c4a1.x.y", "approve", by="ann"), lambda: record.withdraw("yes_1", run="r", by="ann")):
        with pytest.raises(c4a.DecideNotAllowed):
            deed()
