"""The control entries of a delayed stream: what leaders, operators and views write beside the jobs themselves.

Wire forms are in docs/protocol.md. Reading is lenient in one way only: an entry that is not well formed has no
effect (`read_control` gives None), because a fold must agree with every other fold, whatever is in the log.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from amqpjobs.model import values
from amqpjobs.model.copies import Again, Carry, read_again, read_body, read_carry
from amqpjobs.model.position import Position, foreign_id
from amqpjobs.model.words import Op, Verdict

__all__ = [
    "CLAIMED_HOWS",
    "CONTROL_TYPES",
    "Again",
    "Carry",
    "Claimed",
    "Command",
    "Control",
    "EpochMark",
    "How",
    "OfOurs",
    "Op",
    "Position",
    "Sealed",
    "Settled",
    "Target",
    "Term",
    "Tick",
    "Trimmed",
    "Verdict",
    "foreign_id",
    "read_control",
    "read_source",
]


class How(enum.StrEnum):
    """Why an entry left the set, as a `settled` entry says it."""

    ENQUEUED = "enqueued"
    KILLED = "killed"
    EXPIRED = "expired"
    DROPPED = "dropped"


CLAIMED_HOWS = frozenset({How.ENQUEUED, How.KILLED})
"""Settlements of what was claimed and published; the others need a current term and an unclaimed entry."""


@dataclass(frozen=True, slots=True)
class EpochMark:
    """Names this incarnation of the stream; the first one wins."""

    epoch: str


@dataclass(frozen=True, slots=True)
class Term:
    """A candidate's bid to lead under number `n`; `by` names its process for people."""

    epoch: str
    n: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The leader of term `n` is about to publish these entries, those of them that are due at `until` (None: all)."""

    epoch: str
    n: int
    entries: tuple[str, ...]
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """These entries are over. `revs` (aligned with `entries`) is required for `expired` and `dropped`."""

    epoch: str
    n: int
    entries: tuple[str, ...]
    how: How
    revs: tuple[Position, ...] = ()


class Target(NamedTuple):
    """What a command points at: a jid, and one entry of it (None: its newest)."""

    jid: str
    entry: str | None


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's wish, judged by the fold. `at` and `due` are seconds since 1970.

    `body` is what a restore brings back: the bytes of its one target, an entry that was deleted.
    """

    uuid: str
    op: Op
    targets: tuple[Target, ...]
    at: float
    by: str = ""
    epoch: str | None = None
    due: float | None = None
    error_class: str | None = None
    error_message: str | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """The leader has brought over all that it knew of the stream's earlier life: checkpoints may begin."""

    epoch: str
    n: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The leader of term `n` lets a recurring job's tick `t` (seconds since 1970) happen.

    `body` is the scheduled job that it makes; without one only the fold's memory of the last tick moves. `back`: a
    clock that was wrong made the last tick, and it is taken back to `t`.
    """

    epoch: str
    n: int
    name: str
    t: int
    body: bytes | None = None
    back: bool = False


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The leader saw that retention took `entries` entries which were pending, all that stood before `first`."""

    epoch: str
    n: int
    first: int
    entries: int
    at: float


OfOurs = Term | Claimed | Settled | Carry | Tick | Sealed | Trimmed
"""What counts only in a message that says who wrote it."""

Control = EpochMark | Command | Again | OfOurs

CONTROL_TYPES = frozenset(
    {"epoch", "term", "claimed", "settled", "command", "again", "carry", "tick", "sealed", "trimmed", "marker"}
)


def read_source(first: Any) -> tuple[str, int] | None:
    """`from` and `seq` of a message of ours, told by its first entry; None of any other."""
    try:
        return values.text(first["from"]), values.whole(first["seq"])
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def read_control(value: Mapping[str, Any]) -> Control | None:
    """The control entry that `value` is, or None where it is none or is not well formed."""
    reader = _READERS.get(value.get("type", ""))
    try:
        return reader(value) if reader else None
    except (KeyError, TypeError, ValueError):
        return None


def _epoch(value: Mapping[str, Any]) -> EpochMark:
    return EpochMark(values.text(value["epoch"]))


def _term(value: Mapping[str, Any]) -> Term:
    return Term(values.text(value["epoch"]), values.whole(value["n"]), values.line(value.get("by", "")))


def _claimed(value: Mapping[str, Any]) -> Claimed:
    until = None if value.get("until") is None else values.number(value["until"])
    return Claimed(values.text(value["epoch"]), values.whole(value["n"]), values.ids(value["entries"]), until)


def _settled(value: Mapping[str, Any]) -> Settled:
    entries, how = values.ids(value["entries"]), How(value["how"])
    revs = tuple(Position(values.whole(offset), values.whole(item)) for offset, item in value.get("revs", ()))
    if how not in CLAIMED_HOWS and len(revs) != len(entries):
        raise ValueError
    return Settled(values.text(value["epoch"]), values.whole(value["n"]), entries, how, revs)


def _target(value: Mapping[str, Any]) -> Target:
    entry = value.get("entry")
    return Target(values.text(value["jid"]), None if entry is None else values.text(str(entry)))


def _command(value: Mapping[str, Any]) -> Command:
    op = Op(value["op"])
    due = value.get("due")
    targets = tuple(_target(item) for item in value["entries"])
    if op is Op.RESCHEDULE and due is None:
        raise ValueError
    if op is Op.RESTORE and (len(targets) != 1 or targets[0].entry is None):
        raise ValueError  # each has a body, and a verdict, of its own
    return Command(
        uuid=values.text(value["uuid"]),
        op=op,
        targets=targets,
        at=values.number(value["at"]),
        by=values.line(value.get("by", "")),
        epoch=None if value.get("epoch") is None else values.text(value["epoch"]),
        due=None if due is None else values.number(due),
        error_class=None if value.get("error_class") is None else values.text(value["error_class"]),
        error_message=None if value.get("error_message") is None else values.text(value["error_message"]),
        body=read_body(value) if op is Op.RESTORE else None,
    )


def _sealed(value: Mapping[str, Any]) -> Sealed:
    return Sealed(values.text(value["epoch"]), values.whole(value["n"]))


def _trimmed(value: Mapping[str, Any]) -> Trimmed:
    first, entries = values.whole(value["first"]), values.whole(value["entries"])
    return Trimmed(values.text(value["epoch"]), values.whole(value["n"]), first, entries, values.number(value["at"]))


def _tick(value: Mapping[str, Any]) -> Tick:
    body = value.get("body")
    return Tick(
        epoch=values.text(value["epoch"]),
        n=values.whole(value["n"]),
        name=values.text(value["name"]),
        t=values.whole(value["t"]),
        body=None if body is None else values.text(body).encode(),
        back=value.get("back") is True,
    )


_READERS: Mapping[str, Any] = {
    "epoch": _epoch,
    "term": _term,
    "claimed": _claimed,
    "settled": _settled,
    "command": _command,
    "again": read_again,
    "carry": read_carry,
    "tick": _tick,
    "sealed": _sealed,
    "trimmed": _trimmed,
}
