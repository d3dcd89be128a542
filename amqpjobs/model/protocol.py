"""The control entries of a delayed stream: what leaders, operators and views write beside the jobs themselves.

Wire forms are in docs/protocol.md. Reading is lenient in one way only: an entry that is not well formed has no
effect (`read_control` gives None), because a fold must agree with every other fold, whatever is in the log.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Position(NamedTuple):
    """Where an entry stands in its stream: the message's offset, and which item of that message it is."""

    offset: int
    item: int

    @property
    def id(self) -> str:
        """The identity of an entry that first appeared here: "1234", or "1234:7" within an array."""
        return str(self.offset) if self.item == 0 else f"{self.offset}:{self.item}"


def foreign_id(epoch: str | None, entry: str, raw: bytes) -> str:
    """The identity, in another incarnation of the stream, of an entry that first appeared in `epoch`.

    An incarnation that no leader lived to name (None) lends no name: two such ones in a row would give the same to
    different entries, and the second would be taken for a repeat of the first. The entry's own bytes tell them apart.
    """
    if "/" in entry:
        return entry
    return f"{epoch or '~' + hashlib.blake2b(raw, digest_size=8).hexdigest()}/{entry}"


class Op(enum.StrEnum):
    """What a command asks for."""

    DELETE = "delete"
    TRIGGER = "trigger"
    RESCHEDULE = "reschedule"
    KILL = "kill"
    RESTORE = "restore"


class Verdict(enum.StrEnum):
    """What the fold says of one target of a command."""

    DONE = "done"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"


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
    """The leader of term `n` is about to publish these entries."""

    epoch: str
    n: int
    entries: tuple[str, ...]


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
class Again:
    """An entry of an earlier incarnation, appended again under its old identity."""

    id: str
    jid: str
    due: float | None
    bury: bool
    fault: tuple[str, str] | None
    body: bytes


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


Control = EpochMark | Term | Claimed | Settled | Command | Again | Tick

CONTROL_TYPES = frozenset({"epoch", "term", "claimed", "settled", "command", "again", "tick", "marker"})


MAX_NUMBER = 2**63 - 1
"""The greatest term, sequence number and offset: SQLite keeps no greater integer."""


def read_source(first: Any) -> tuple[str, int] | None:
    """`from` and `seq` of a message of ours, told by its first entry; None of any other."""
    try:
        return _text(first["from"]), _whole(first["seq"])
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def read_control(value: Mapping[str, Any]) -> Control | None:
    """The control entry that `value` is, or None where it is none or is not well formed."""
    reader = _READERS.get(value.get("type", ""))
    try:
        return reader(value) if reader else None
    except (KeyError, TypeError, ValueError):
        return None


def _line(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate would stop SQLite, and with it every view, for ever
    return value


def _text(value: object) -> str:
    if not value:
        raise ValueError
    return _line(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _ids(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(item) for item in value)


def _epoch(value: Mapping[str, Any]) -> EpochMark:
    return EpochMark(_text(value["epoch"]))


def _term(value: Mapping[str, Any]) -> Term:
    return Term(_text(value["epoch"]), _whole(value["n"]), _line(value.get("by", "")))


def _claimed(value: Mapping[str, Any]) -> Claimed:
    return Claimed(_text(value["epoch"]), _whole(value["n"]), _ids(value["entries"]))


def _settled(value: Mapping[str, Any]) -> Settled:
    entries, how = _ids(value["entries"]), How(value["how"])
    revs = tuple(Position(_whole(offset), _whole(item)) for offset, item in value.get("revs", ()))
    if how not in CLAIMED_HOWS and len(revs) != len(entries):
        raise ValueError
    return Settled(_text(value["epoch"]), _whole(value["n"]), entries, how, revs)


def _target(value: Mapping[str, Any]) -> Target:
    entry = value.get("entry")
    return Target(_text(value["jid"]), None if entry is None else _text(str(entry)))


def _command(value: Mapping[str, Any]) -> Command:
    op = Op(value["op"])
    due = value.get("due")
    targets = tuple(_target(item) for item in value["entries"])
    if op is Op.RESCHEDULE and due is None:
        raise ValueError
    if op is Op.RESTORE and (len(targets) != 1 or targets[0].entry is None):
        raise ValueError  # each has a body, and a verdict, of its own
    return Command(
        uuid=_text(value["uuid"]),
        op=op,
        targets=targets,
        at=_number(value["at"]),
        by=_line(value.get("by", "")),
        epoch=None if value.get("epoch") is None else _text(value["epoch"]),
        due=None if due is None else _number(due),
        error_class=None if value.get("error_class") is None else _text(value["error_class"]),
        error_message=None if value.get("error_message") is None else _text(value["error_message"]),
        body=_body(value) if op is Op.RESTORE else None,
    )


def _again(value: Mapping[str, Any]) -> Again:
    id_ = _text(value["id"])
    if "/" not in id_:
        raise ValueError
    due, fault = value.get("due"), value.get("fault")
    return Again(
        id=id_,
        jid=_text(value["jid"]),
        due=None if due is None else _number(due),
        bury=value.get("bury") is True,
        fault=None if fault is None else (_text(fault[0]), _line(fault[1])),
        body=_body(value),
    )


def _body(value: Mapping[str, Any]) -> bytes:
    return base64.b64decode(value["body_base64"]) if "body_base64" in value else _text(value["body"]).encode()


def _tick(value: Mapping[str, Any]) -> Tick:
    body = value.get("body")
    return Tick(
        epoch=_text(value["epoch"]),
        n=_whole(value["n"]),
        name=_text(value["name"]),
        t=_whole(value["t"]),
        body=None if body is None else _text(body).encode(),
        back=value.get("back") is True,
    )


_READERS: Mapping[str, Any] = {
    "epoch": _epoch,
    "term": _term,
    "claimed": _claimed,
    "settled": _settled,
    "command": _command,
    "again": _again,
    "tick": _tick,
}
