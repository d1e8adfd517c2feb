"""An action happens once in its run: repeats, exceptions, results, keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import c4a
from c4a.record.types import MAX_RESULT_BYTES
from tests.library.conftest import Library


def test_it_runs_an_action_once_and_returns_the_recorded_result_again(library: Library) -> None:
    sent: list[str] = []

    @c4a.effect
    def send(to: str, body: str) -> dict[str, str]:
        sent.append(to)
        return {"id": f"mail-{len(sent)}"}

    with c4a.run("r"):
        first = send("bob", "hi")
        again = send(body="hi", to="bob")
    assert (first, again, sent) == ({"id": "mail-1"}, {"id": "mail-1"}, ["bob"])


def test_it_says_whether_the_last_outcome_was_replayed_and_when_it_was_done(library: Library) -> None:
    @c4a.effect
    def send(to: str) -> str:
        return "sent"

    with c4a.run("r"):
        send("bob")
        first = c4a.last_outcome()
        send("bob")
        again = c4a.last_outcome()
    assert first is not None
    assert again is not None
    assert (first.replayed, first.first_done_at, first.attempt) == (False, None, 1)
    assert (again.replayed, again.first_done_at, again.attempt, again.key) == (True, library.only_effect().done_at, 1, first.key)


def test_another_process_gets_the_recorded_result(library: Library) -> None:
    code = """
        @c4a.effect(name="send")
        def send(to):
            say("sent")
            return ("mail", 1)
        with c4a.run("r"):
            say(repr(send("bob")))
    """
    first = library.start(code).communicate(timeout=30)[0].split("\n")
    again = library.start(code).communicate(timeout=30)[0].split("\n")
    assert first[:2] == ["sent", "('mail', 1)"]
    assert again[:1] == ["('mail', 1)"]


def test_case_1_the_outside_key_is_the_same_on_every_attempt_and_the_charge_happens_once(library: Library) -> None:
    charges: list[str] = []

    @c4a.effect
    def charge(card: int) -> str:
        charges.append(c4a.idempotency_key())
        return "charged"

    def body() -> None:
        charge(500)
        raise RuntimeError("the run's own body fails after the payment")

    for _ in range(2):
        with c4a.run("r"), pytest.raises(RuntimeError):
            body()
    assert len(charges) == 1

    seen: list[str] = []

    @c4a.effect(retry_on=ConnectionRefusedError)
    def flaky(card: int) -> str:
        seen.append(c4a.idempotency_headers("X-Key")["X-Key"])
        if len(seen) == 1:
            raise ConnectionRefusedError("nothing was sent")
        return "charged"

    with c4a.run("r"):
        with pytest.raises(ConnectionRefusedError):
            flaky(500)
        assert flaky(500) == "charged"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert len(seen[0]) == 36


def test_case_3_a_call_repeated_while_the_first_still_runs_waits_for_its_result(library: Library) -> None:
    ran: list[str] = []
    begun = threading.Event()
    outcomes: list[bool] = []

    @c4a.effect(wait=20.0)
    def slow(name: str) -> str:
        ran.append(name)
        begun.set()
        threading.Event().wait(0.4)
        return "answer"

    def call(wait_for_first: bool) -> str:
        if wait_for_first:
            begun.wait(10)
        with c4a.run("r"):
            answer = slow("x")
        outcome = c4a.last_outcome()
        assert outcome is not None
        outcomes.append(outcome.replayed)
        return answer

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(call, [False, True]))
    assert answers == ["answer", "answer"]
    assert ran == ["x"]
    assert sorted(outcomes) == [False, True]


def test_case_3_a_failed_first_call_is_not_replayed_as_a_success(library: Library) -> None:
    @c4a.effect(retry_on=ConnectionRefusedError)
    def send(to: str) -> str:
        raise ConnectionRefusedError("down")

    with c4a.run("r"):
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                send("bob")


def test_case_4_code_before_an_interrupt_reruns_at_every_resume_and_sends_one_mail(library: Library) -> None:
    sent: list[str] = []

    @c4a.effect
    def send_email(to: str) -> int:
        sent.append(to)
        return len(sent)

    def node(answers: list[str]) -> int:
        number = send_email("bob")
        for question in ("A", "B"):
            if question not in answers:
                raise InterruptedError(question)
        return number

    with c4a.run("thread-1"):
        for answers in ([], ["A"]):
            with pytest.raises(InterruptedError):
                node(answers)
        assert node(["A", "B"]) == 1
    assert sent == ["bob"]


def test_case_6_a_key_is_never_inherited_and_another_tool_with_the_same_text_acts_for_itself(library: Library) -> None:
    acted: list[str] = []

    @c4a.effect
    def create(item: str) -> str:
        acted.append("create")
        return pay(item)

    @c4a.effect
    def pay(item: str) -> str:
        acted.append("pay")
        return "paid"

    with c4a.run("r"):
        create("a", c4a_key="k")  # type: ignore[call-arg]
        pay("a", c4a_key="k")  # type: ignore[call-arg]
        with pytest.raises(c4a.KeyConflict):
            pay("b", c4a_key="k")  # type: ignore[call-arg]
    keys = {(effect.tool.rpartition(".")[2], effect.explicit_key) for effect in library.effects()}
    assert keys == {("create", "k"), ("pay", None), ("pay", "k")}
    assert acted == ["create", "pay", "pay"]


@pytest.mark.parametrize("blank", [None, "", "  ", True, 1.5, b"k"])
def test_case_8_a_missing_or_blank_key_is_refused_and_never_shared(library: Library, blank: Any) -> None:
    acted: list[str] = []

    @c4a.effect
    def send(body: str) -> str:
        acted.append(body)
        return body

    @c4a.effect(key=lambda **_: blank)
    def keyed(body: str) -> str:
        acted.append(body)
        return body

    with c4a.run("r"):
        for body in ("one", "two"):
            with pytest.raises(c4a.InvalidArguments, match="key"):
                send(body, c4a_key=blank)  # type: ignore[call-arg]
            with pytest.raises(c4a.InvalidArguments, match="key"):
                keyed(body)
        assert (send("one"), send("two")) == ("one", "two")
    assert acted == ["one", "two"]


def test_case_10_a_key_is_not_new_again_however_long_ago_it_was_used(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(idempotent_for=0.01)
    def act() -> str:
        ran.append(1)
        return "done"

    with c4a.run("r"):
        act()
        threading.Event().wait(0.05)  # longer than the outside remembers the key
        assert act() == "done"
    assert ran == [1]


def test_case_11_the_same_key_text_in_another_run_or_organization_acts_for_itself(library: Library) -> None:
    ran: list[str] = []

    @c4a.effect(name="order")
    def order(who: str) -> str:
        ran.append(who)
        return f"for {who}"

    with c4a.run("a"):
        assert order("x", c4a_key="order-1") == "for x"  # type: ignore[call-arg]
    with c4a.run("b"):
        assert order("x", c4a_key="order-1") == "for x"  # type: ignore[call-arg]
    c4a.init(library.folder / "other" / "ledger.sqlite")
    with c4a.run("a"):
        assert order("x", c4a_key="order-1") == "for x"  # type: ignore[call-arg]
    library.init()
    assert ran == ["x", "x", "x"]


def test_case_18_a_retry_after_the_model_failed_returns_the_recorded_result_and_the_yes_stays_used(library: Library) -> None:
    deployed: list[str] = []

    @c4a.effect(approval=True)
    def deploy(target: str) -> str:
        deployed.append(target)
        return "ok"

    with c4a.run("r"):
        c4a.approve(deploy, target="prod")
        for _ in range(3):
            assert deploy(target="prod") == "ok"
    assert deployed == ["prod"]
    assert library.only_effect().approval is not None


def test_a_f1_an_exception_after_the_effect_leaves_it_in_doubt_and_never_runs_it_again(library: Library) -> None:
    charged: list[int] = []

    @c4a.effect
    def charge(amount: int) -> str:
        charged.append(amount)
        raise TimeoutError("no answer from the bank")

    with c4a.run("r"):
        with pytest.raises(TimeoutError):
            charge(10)
        for _ in range(2):
            with pytest.raises(c4a.EffectInDoubt, match="no answer from the bank") as caught:
                charge(10)
    assert caught.value.reason == "raised"
    assert charged == [10]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_leaving_the_body_by_a_signal_is_in_doubt_too(library: Library, error: type[BaseException]) -> None:
    @c4a.effect
    def act() -> None:
        raise error

    with c4a.run("r"):
        with pytest.raises(error):
            act()
        with pytest.raises(c4a.EffectInDoubt, match=error.__name__):
            act()


def test_an_error_whose_own_text_raises_is_recorded_by_its_name(library: Library) -> None:
    class Sulky(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    @c4a.effect
    def act() -> None:
        raise Sulky

    with c4a.run("r"):
        with pytest.raises(Sulky):
            act()
        with pytest.raises(c4a.EffectInDoubt, match="Sulky"):
            act()


class Connection:
    """A result with no stable form."""


def test_a_f3_a_result_that_cannot_be_kept_is_done_and_handed_over_at_once(library: Library) -> None:
    opened: list[Connection] = []

    @c4a.effect
    def open_connection(to: str) -> Any:
        opened.append(Connection())
        return opened[-1]

    with c4a.run("r"):
        with pytest.raises(c4a.ResultNotRecordable) as first:
            open_connection("db")
        with pytest.raises(c4a.ResultNotRecordable) as again:
            open_connection("db")
    assert first.value.result is opened[0]
    assert again.value.result is None
    assert "Connection" in again.value.text
    assert len(opened) == 1
    assert library.only_effect().state == "done"


def test_an_oversize_result_is_returned_once_and_known_by_its_digest_and_head_afterwards(library: Library) -> None:
    @c4a.effect
    def fetch() -> str:
        return "x" * (MAX_RESULT_BYTES + 1)

    with c4a.run("r"):
        assert len(fetch()) == MAX_RESULT_BYTES + 1
        with pytest.raises(c4a.ResultNotRecordable) as again:
            fetch()
    assert again.value.note == "oversize"
    assert again.value.head.startswith('"xxx')
    assert len(again.value.sha256) == 64
    assert library.only_effect().state == "done"


def test_case_20_a_result_with_nul_or_a_lone_surrogate_comes_back_as_it_was(library: Library) -> None:
    @c4a.effect
    def log(n: int) -> dict[str, str]:
        return {"log": "a\u0000b", "half": "\ud800"}

    with c4a.run("r"):
        assert log(1) == log(1) == {"log": "a\u0000b", "half": "\ud800"}


def test_retry_on_proves_that_nothing_happened_and_the_next_call_runs(library: Library) -> None:
    tries: list[int] = []

    @c4a.effect(retry_on=(ConnectionRefusedError,))
    def act() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionRefusedError
        return "done"

    with c4a.run("r"):
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                act()
        assert act() == "done"
    assert library.only_effect().attempt == 3


def test_a_deliberate_second_action_takes_its_own_key(library: Library) -> None:
    sent: list[str] = []

    @c4a.effect
    def send(to: str) -> int:
        sent.append(to)
        return len(sent)

    with c4a.run("r"):
        assert [send("bob"), send("bob", c4a_key="second"), send("bob", c4a_key="second")] == [1, 2, 2]  # type: ignore[call-arg]


def test_seven_and_the_text_7_are_one_key_and_key_functions_get_the_arguments_by_name(library: Library) -> None:
    sent: list[Any] = []

    @c4a.effect(key=lambda order, **_: order)
    def ship(order: Any, note: str = "") -> int:
        sent.append(order)
        return len(sent)

    with c4a.run("r"):
        assert [ship(7), ship(7)] == [1, 1]
        with pytest.raises(c4a.KeyConflict) as caught:
            ship("7")
    assert caught.value.explicit_key == "7"
    assert caught.value.recorded_arguments == '{"note":"","order":7}'
    assert caught.value.given_arguments == '{"note":"","order":"7"}'


def test_an_effect_inside_an_effect_records_its_parent(library: Library) -> None:
    @c4a.effect
    def outer() -> str:
        return inner()

    @c4a.effect
    def inner() -> str:
        return "in"

    with c4a.run("r"):
        outer()
    by_tool = {effect.tool.rpartition(".")[2]: effect for effect in library.effects()}
    assert by_tool["inner"].parent == by_tool["outer"].key
    assert by_tool["outer"].parent is None


def test_100_callers_of_one_action_run_it_once(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(wait=30.0)
    def act() -> int:
        ran.append(1)
        return len(ran)

    def call(_: int) -> int:
        with c4a.run("r"):
            return act()

    with ThreadPoolExecutor(25) as pool:
        assert set(pool.map(call, range(100))) == {1}
    assert ran == [1]


@pytest.mark.parametrize(("library", "processes"), [("file", 4), ("database", 8)], indirect=["library"])
def test_100_callers_in_several_processes_run_an_action_once(library: Library, processes: int) -> None:
    code = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        @c4a.effect(name="act", wait=30.0)
        def act(n):
            say("ran")
            time.sleep(0.2)
            return "result"
        def call(_):
            with c4a.run("r"):
                return act(1)
        sys.stdin.readline()
        count = int(sys.argv[1])
        with ThreadPoolExecutor(count) as pool:
            for answer in pool.map(call, range(count)):
                say(answer)
    """
    each = -(-100 // processes)
    started = [library.start(code, str(each)) for _ in range(processes)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = "".join(process.communicate(timeout=60)[0] for process in started).split()
    assert told.count("ran") == 1
    assert told.count("result") == each * processes


@pytest.mark.parametrize("library", ["database"], indirect=True)
def test_c_e5_a_connection_lost_during_the_action_is_made_again_and_the_result_is_kept(library: Library) -> None:
    import psycopg

    ran: list[int] = []

    @c4a.effect
    def act() -> str:
        ran.append(1)
        with psycopg.connect(library.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return "done"

    with c4a.run("r"):
        assert act() == act() == "done"
    assert ran == [1]
    assert library.only_effect().attempt == 1


@pytest.mark.parametrize("library", ["database"], indirect=True)
def test_c_e6_130_threads_share_a_bounded_number_of_connections(library: Library) -> None:
    import psycopg

    @c4a.effect
    def act(n: int) -> int:
        return n

    gate = threading.Barrier(130)

    def call(n: int) -> int:
        gate.wait(30)
        with c4a.run("r"):
            return act(n)

    with ThreadPoolExecutor(130) as pool:
        assert sorted(pool.map(call, range(130))) == list(range(130))
    with psycopg.connect(library.address) as connection:
        counted = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
    assert counted is not None
    assert counted[0] <= 12


def test_an_action_outside_a_run_is_refused_and_says_what_to_do(library: Library) -> None:
    @c4a.effect
    def act() -> None:
        return None

    with pytest.raises(RuntimeError, match=r"with c4a.run"):
        act()
    with pytest.raises(c4a.NoCurrentRun):
        c4a.approve(act)
    with c4a.run("r"), pytest.raises(c4a.NoCurrentRun, match="body of a @c4a.effect"):
        c4a.idempotency_key()


def test_c_d1_a_result_of_a_local_class_is_refused_at_once_unless_it_is_annotated(library: Library) -> None:
    from dataclasses import dataclass

    @dataclass
    class Local:
        x: int

    def plain():  # type: ignore[no-untyped-def]
        return Local(1)

    def annotated():  # type: ignore[no-untyped-def]
        return Local(2)

    annotated.__annotations__["return"] = Local
    with c4a.run("r"):
        with pytest.raises(c4a.ResultNotRecordable) as caught:
            c4a.effect(plain)()
        act = c4a.effect(annotated)
        assert act() == act() == Local(2)
    assert caught.value.result == Local(1)
