"""Which processes are there: a pure fold of heartbeats.

A process is its identity *and* its nonce: three containers with process id 1 and one host name are three rows.
Whether it is there is told by when its heartbeats arrived here, never by the clock of its machine, which may be
wrong by hours. All times are arguments, in seconds of one clock that only grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from amqpjobs.model.messages import Heartbeat

STALE_AFTER = 30.0
"""Seconds without a heartbeat (three missed ones) after which a process counts as stale."""
GONE_AFTER = 60.0
"""Seconds without a heartbeat after which a process is no longer there."""

GOODBYE = "stopped"
"""The state that a process tells last."""

State = Literal["fresh", "stale"]


class Key(NamedTuple):
    """What tells one process from another. Foreign workers without a nonce are told apart by identity alone."""

    identity: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Process:
    """The last word of one process, and when its first and last heartbeats arrived."""

    beat: Heartbeat
    first_seen: float
    seen: float

    def silent_for(self, now: float) -> float:
        """Seconds since its last heartbeat arrived."""
        return max(0.0, now - self.seen)

    def state(self, now: float) -> State:
        """Whether it beats or has missed some."""
        return "stale" if self.silent_for(now) >= STALE_AFTER else "fresh"


class Processes:
    """The fold's state. `arrive` for each heartbeat in the stream's order, `present` to ask."""

    def __init__(self) -> None:
        self._there: dict[Key, Process] = {}
        self._left: dict[Key, float] = {}

    def arrive(self, beat: Heartbeat, at: float) -> None:
        """Take one heartbeat that arrived at `at`."""
        key = Key(beat.identity, beat.nonce or "")
        if beat.state == GOODBYE:
            self._there.pop(key, None)
            if key.nonce:
                self._left[key] = at
            return
        # A heartbeat that was on its way while its process said goodbye must not bring it back for a minute.
        if at - self._left.get(key, -GONE_AFTER + at) < GONE_AFTER:
            return
        before = self._there.get(key)
        known = before is not None and at - before.seen < GONE_AFTER
        self._there[key] = Process(beat, before.first_seen if before and known else at, at)

    def arrive_all(self, beats: Iterable[Heartbeat], at: float) -> None:
        """Take several that arrived together."""
        for beat in beats:
            self.arrive(beat, at)

    def present(self, now: float) -> list[Process]:
        """The processes that are there, by identity, then the longest known first."""
        self._forget(now)
        return sorted(self._there.values(), key=lambda p: (p.beat.identity, p.first_seen, p.beat.nonce or ""))

    def _forget(self, now: float) -> None:
        for key in [key for key, process in self._there.items() if now - process.seen >= GONE_AFTER]:
            del self._there[key]
        for key in [key for key, at in self._left.items() if now - at >= GONE_AFTER]:
            del self._left[key]
