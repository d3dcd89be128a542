"""The life of a tracked job: its states, what can happen to it, and where that leads. One table, and nothing else.

`TABLE` is the documentation too: docs/tracked.md holds the diagram that `diagram()` draws of it. What the table does
not name is illegal: it changes nothing, and whoever asked for it is told of a conflict.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class State(enum.StrEnum):
    """Where a tracked job is in its life."""

    SCHEDULED = "scheduled"
    """Its first time to run is yet to come."""
    QUEUED = "queued"
    """It waits for a worker."""
    BLOCKED = "blocked"
    """It waits for the end of another job of its key."""
    RUNNING = "running"
    RETRYING = "retrying"
    """It failed, timed out, was lost by its worker or given back, and waits for its next try."""
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    """The job of its key that it waited for is to run again, and took over what it asked for."""
    GONE = "gone"
    """No record is left of it: deleted, or expired."""


class Event(enum.StrEnum):
    """What happens to a tracked job."""

    DUE = "due"
    TAKE = "take"
    BEAT = "beat"
    NOTE = "note"
    """Output, progress or a line of its log."""
    COMPLETE = "complete"
    FAIL = "fail"
    TIME_OUT = "time out"
    STALL = "stall"
    """Its worker vanished."""
    GIVE_BACK = "give back"
    """Its holder has not done it, and that counts as no try."""
    CANCEL = "cancel"
    WITHDRAW = "withdraw"
    """Cancelled, if it has not begun."""
    CHANGE = "change"
    """Dispatched again while it waits."""
    UNBLOCK = "unblock"
    """The job of its key that it waited for has ended."""
    MERGE = "merge"
    """The job of its key that it waited for is to run again."""
    ABANDON = "abandon"
    """Its queue was deleted."""
    DELETE = "delete"
    EXPIRE = "expire"


class When(enum.StrEnum):
    """What decides between two ways on."""

    ALWAYS = ""
    RETRY_LEFT = "a retry is left"
    NO_RETRY_LEFT = "no retry is left"
    STALL_LEFT = "it may be lost once more"
    NO_STALL_LEFT = "it was lost too often"
    NOW = "it may run now"
    LATER = "it may run later"
    HAD_FAILED = "it had failed"
    HAD_TIMED_OUT = "it had timed out"


class Way(NamedTuple):
    """One way on: under this condition, to that state."""

    when: When
    to: State


WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.BLOCKED, State.RETRYING})
ENDED = frozenset({State.COMPLETED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.REPLACED})
"""No worker takes it any more. A record of it is left."""


def _table() -> Mapping[tuple[State, Event], tuple[Way, ...]]:
    s, e, w = State, Event, When
    rows: list[tuple[Iterable[State], Event, tuple[Way, ...]]] = [
        ({s.SCHEDULED, s.RETRYING}, e.DUE, _to(s.QUEUED)),
        ({s.QUEUED}, e.TAKE, _to(s.RUNNING)),
        ({s.RUNNING}, e.BEAT, _to(s.RUNNING)),
        ({s.RUNNING}, e.NOTE, _to(s.RUNNING)),
        ({s.RUNNING}, e.COMPLETE, _to(s.COMPLETED)),
        ({s.RUNNING}, e.FAIL, (Way(w.RETRY_LEFT, s.RETRYING), Way(w.NO_RETRY_LEFT, s.FAILED))),
        ({s.RUNNING}, e.TIME_OUT, (Way(w.RETRY_LEFT, s.RETRYING), Way(w.NO_RETRY_LEFT, s.TIMED_OUT))),
        ({s.RUNNING}, e.STALL, (Way(w.STALL_LEFT, s.RETRYING), Way(w.NO_STALL_LEFT, s.FAILED))),
        ({s.RUNNING}, e.GIVE_BACK, (Way(w.NOW, s.QUEUED), Way(w.LATER, s.RETRYING))),
        (WAITING | {s.RUNNING}, e.CANCEL, _to(s.CANCELLED)),
        (WAITING, e.WITHDRAW, _to(s.CANCELLED)),
        ({s.SCHEDULED, s.QUEUED}, e.CHANGE, (Way(w.NOW, s.QUEUED), Way(w.LATER, s.SCHEDULED))),
        ({s.RETRYING}, e.CHANGE, (Way(w.NOW, s.QUEUED), Way(w.LATER, s.RETRYING))),
        ({s.BLOCKED}, e.CHANGE, _to(s.BLOCKED)),
        ({s.BLOCKED}, e.UNBLOCK, (Way(w.NOW, s.QUEUED), Way(w.LATER, s.SCHEDULED))),
        ({s.BLOCKED}, e.MERGE, _to(s.REPLACED)),
        ({s.SCHEDULED, s.QUEUED, s.BLOCKED}, e.ABANDON, _to(s.GONE)),
        ({s.RETRYING}, e.ABANDON, (Way(w.HAD_FAILED, s.FAILED), Way(w.HAD_TIMED_OUT, s.TIMED_OUT))),
        (WAITING | ENDED | {s.RUNNING}, e.DELETE, _to(s.GONE)),
        (ENDED, e.EXPIRE, _to(s.GONE)),
    ]
    return {(state, event): ways for states, event, ways in rows for state in states}


def _to(state: State) -> tuple[Way, ...]:
    return (Way(When.ALWAYS, state),)


TABLE = _table()


def after(state: State, event: Event, holds: Callable[[When], bool]) -> State | None:
    """The state that `event` leads to from `state`; None when it is illegal there.

    `holds` is asked about conditions, in the table's order, where there is more than one way.
    """
    for when, to in TABLE.get((state, event), ()):
        if when is When.ALWAYS or holds(when):
            return to
    return None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {first}" for first in (State.QUEUED, State.SCHEDULED, State.BLOCKED)]
    drawn: dict[tuple[State, State], list[str]] = {}
    for state in State:
        for event in Event:
            for way in TABLE.get((state, event), ()):
                words = event.value if way.when is When.ALWAYS else f"{event.value} ({way.when.value})"
                drawn.setdefault((state, way.to), []).append(words)
    for (state, to), words_ in drawn.items():
        goal = "[*]" if to is State.GONE else to.value
        lines.append(f"    {state.value} --> {goal}: {', '.join(words_)}")
    return "\n".join(lines)
