"""The entries of the stream `audit`: what was ordered, by whom, for which jobs, and what the fold said of it.

An order is on record before it is given: whoever dies in between leaves a record without verdicts, never an act
without a record. One `action` entry stands for one command; the commands of one action (all that match, in chunks)
share its id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amqpjobs.model import reading
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.protocol import Position, Verdict


class Touched(NamedTuple):
    """One job that an action is about. `pos` is where the entry's bytes are in its stream, `due` when it was due."""

    jid: str
    entry: str | None = None
    pos: Position | None = None
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Ordered:
    """One command of an action, before it is given.

    `place` is a stream's name, or what an order for workers names; `where` the filter that the jobs were listed by.
    `at` and `due` are seconds since 1970; `via` is "cli", "api", "web" or "client".
    """

    action: str
    command: str
    op: str
    place: str
    by: str
    via: str
    at: float
    jobs: tuple[Touched, ...] = ()
    due: float | None = None
    epoch: str | None = None
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """What the fold said of a command, a verdict a job in the order of its record."""

    command: str
    verdicts: tuple[Verdict, ...]


def write_ordered(ordered: Ordered) -> dict[str, Any]:
    """The `action` entry."""
    fields: dict[str, Any] = {
        "type": "action",
        "action": ordered.action,
        "command": ordered.command,
        "op": ordered.op,
        "in": ordered.place,
        "by": ordered.by,
        "via": ordered.via,
        "at": ordered.at,
        "jobs": [_job(job) for job in ordered.jobs],
    }
    optional = {"due": ordered.due, "epoch": ordered.epoch, "where": dict(ordered.where) or None}
    return fields | {name: value for name, value in optional.items() if value is not None}


def write_judged(judged: Judged, *, at: float) -> dict[str, Any]:
    """The `verdicts` entry."""
    return {"type": "verdicts", "command": judged.command, "verdicts": list(judged.verdicts), "at": at}


def read_audit(body: bytes) -> Iterator[Ordered | Judged]:
    """The entries of a message of `audit`; what is not well formed is left out."""
    values = reading.values(body)
    if isinstance(values, Unreadable):
        return
    for value in values:
        if isinstance(value, dict):
            try:
                found = _READERS[value["type"]](value)
            except (KeyError, TypeError, ValueError):
                continue
            yield found


def _job(job: Touched) -> dict[str, Any]:
    optional = {"entry": job.entry, "pos": None if job.pos is None else list(job.pos), "due": job.due}
    return {"jid": job.jid} | {name: value for name, value in optional.items() if value is not None}


def _ordered(value: Mapping[str, Any]) -> Ordered:
    return Ordered(
        action=_text(value["action"]),
        command=_text(value["command"]),
        op=_text(value["op"]),
        place=_text(value["in"]),
        by=_text(value.get("by", "")),
        via=_text(value.get("via", "")),
        at=_number(value["at"]),
        jobs=tuple(_touched(job) for job in value["jobs"]),
        due=None if value.get("due") is None else _number(value["due"]),
        epoch=None if value.get("epoch") is None else _text(value["epoch"]),
        where=tuple((_text(name), _text(found)) for name, found in value.get("where", {}).items()),
    )


def _touched(value: Mapping[str, Any]) -> Touched:
    entry, pos, due = value.get("entry"), value.get("pos"), value.get("due")
    return Touched(
        jid=_text(value["jid"]),
        entry=None if entry is None else _text(entry),
        pos=None if pos is None else _position(pos),
        due=None if due is None else _number(due),
    )


def _judged(value: Mapping[str, Any]) -> Judged:
    return Judged(_text(value["command"]), tuple(Verdict(each) for each in value["verdicts"]))


def _position(value: Sequence[Any]) -> Position:
    offset, item = value
    if not (type(offset) is type(item) is int and 0 <= offset < 2**63 and 0 <= item < 2**63):
        raise ValueError
    return Position(offset, item)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # SQLite takes no half of a surrogate pair
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


_READERS: Mapping[str, Any] = {"action": _ordered, "verdicts": _judged}
