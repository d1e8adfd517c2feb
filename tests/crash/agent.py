"""The agent that is killed: one process that opens a record and acts once, in one of several ways."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import c4a
from tests.crash.moments import Moments

SECRET: Final = "a secret of the crash tests, long enough"
DIGEST_KEY: Final = "a digest key of the crash tests, long enough"


@dataclass(frozen=True)
class Place:
    """Where the record is: a path, a database address, or a server's address with an agent's key."""

    kind: str
    address: str
    key: str | None = None

    def open(self) -> None:
        """As an agent does it."""
        if self.key is not None:
            c4a.init(self.address, key=self.key)
        else:
            c4a.init(self.address, secret=SECRET, digest_key=DIGEST_KEY)


@dataclass(frozen=True)
class World:
    """What the action changes outside: lines of a file, on the disk before the action returns."""

    path: Path

    def append(self, line: str) -> None:
        """The deed that must not be done twice."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)

    def lines(self) -> list[str]:
        """What was done so far."""
        return self.path.read_text().splitlines() if self.path.exists() else []


class Refused(Exception):
    """The outside refused before doing anything."""


def act(scenario: str, place: Place, run: str, world: World, moments: Moments) -> str:
    """Do the scenario's action in a run; returns what the agent was told: `done`, `raised` or the code of an error."""
    moments.counting = scenario == "opening"
    place.open()
    moments.counting = True
    deed = SCENARIOS[scenario]
    with c4a.run(run):
        try:
            value = deed(world, moments)
        except c4a.C4AError as error:
            return error.code
    return {"sent": "done"}.get(value, str(value))


def plain(world: World, moments: Moments) -> Any:
    """An action without options."""

    @c4a.effect(name="send", wait=0)
    def send(to: str) -> str:
        return _deed(world, moments, to)

    return send("alice")


def approved(world: World, moments: Moments) -> Any:
    """Approved by the first process, then run; later ones only run it."""

    @c4a.effect(name="send", approval=True, wait=0)
    def send(to: str) -> str:
        return _deed(world, moments, to)

    marker = world.path.with_suffix(".approved")
    if not marker.exists():
        marker.touch()  # whoever is killed while it says yes does not say it again
        c4a.approve(send, to="alice")
    return send("alice")


def retried(world: World, moments: Moments) -> Any:
    """Refused once before anything happened, then tried again at once."""

    @c4a.effect(name="send", retry_on=(Refused,), wait=0)
    def send(to: str) -> str:
        marker = world.path.with_suffix(".refused")
        if not marker.exists():
            marker.touch()
            moments.pass_by("in the action, refused")
            raise Refused
        return _deed(world, moments, to)

    with contextlib.suppress(Refused):
        return send("alice")
    return send("alice")


def failed(world: World, moments: Moments) -> Any:
    """The body raises after the deed: in doubt, never again."""

    @c4a.effect(name="send", wait=0)
    def send(to: str) -> str:
        _deed(world, moments, to)
        raise ConnectionError("no answer")

    try:
        return send("alice")
    except ConnectionError:
        return "raised"


def reconciled(world: World, moments: Moments) -> Any:
    """Whoever comes after asks the outside."""

    def look() -> Any:
        moments.pass_by("while asking outside")
        return c4a.Happened("sent") if world.lines() else c4a.NOT_DONE

    @c4a.effect(name="send", reconcile=lambda to: look(), wait=0)
    def send(to: str) -> str:
        return _deed(world, moments, to)

    return send("alice")


def resent(world: World, moments: Moments) -> Any:
    """Whoever comes after sends the same outside key again; the outside keeps one of each key."""

    @c4a.effect(name="send", idempotent_for=3600, wait=0)
    def send(to: str) -> str:
        return _deed(world, moments, c4a.idempotency_key())

    return send("alice")


def _deed(world: World, moments: Moments, line: str) -> str:
    moments.pass_by("in the action, before the deed")
    world.append(line)
    moments.pass_by("in the action, after the deed")
    return "sent"


SCENARIOS: Final[dict[str, Callable[[World, Moments], Any]]] = {
    "opening": plain,
    "plain": plain,
    "approved": approved,
    "retried": retried,
    "failed": failed,
    "reconciled": reconciled,
    "resent": resent,
}


def live(scenario: str, place: Place, run: str, world: World, kill_at: int | None) -> dict[str, Any]:
    """The whole life of one process; returns its report, if it lives to give one."""
    moments = Moments(kill_at)
    moments.install()
    began = time.monotonic()
    told = act(scenario, place, run, world, moments)
    return {"told": told, "labels": moments.labels, "seconds": time.monotonic() - began}


def report(what: dict[str, Any], descriptor: int) -> None:
    """Say it to the driver."""
    os.write(descriptor, json.dumps(what).encode())
