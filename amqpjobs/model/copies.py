"""Entries that are written a second time: carried forward in their stream, or brought over from its earlier life.

A copy holds all that a reader needs that never saw the first one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from amqpjobs.model import values
from amqpjobs.model.arrival import pending, read_one
from amqpjobs.model.pending import Pending, Summary
from amqpjobs.model.position import Position


@dataclass(frozen=True, slots=True)
class Again:
    """An entry of an earlier incarnation, appended again under its old identity.

    `late`: it comes after the incarnation was sealed, and is a new entry under its own position.
    """

    id: str
    jid: str
    due: float | None
    bury: bool
    fault: tuple[str, str] | None
    body: bytes
    late: bool = False


@dataclass(frozen=True, slots=True)
class Carry:
    """An entry written again further on, so that the log before it can go: the copy of its revision `rev`.

    `summary` and `key` are given where the bytes alone would not give them again.
    """

    id: str
    rev: Position
    jid: str
    due: float | None
    bury: bool
    fault: tuple[str, str] | None
    body: bytes
    summary: Summary | None = None
    key: bytes | None = None


def carry(stream: str, entry: Pending) -> Carry:
    """The copy of a pending entry as it stands."""
    read = _arrived(stream, entry.pos, entry.jid, entry.raw)
    return Carry(
        id=entry.id,
        rev=entry.rev,
        jid=entry.jid,
        due=entry.due,
        bury=entry.bury,
        fault=entry.fault,
        body=entry.raw,
        summary=None if read.summary == entry.summary else entry.summary,
        key=None if read.key == entry.key else entry.key,
    )


def carried(stream: str, pos: Position, copy: Carry) -> Pending:
    """The pending entry that a copy at `pos` is, for a reader that has no other trace of it."""
    read = _arrived(stream, pos, copy.jid, copy.body)
    return replace(
        read,
        id=copy.id,
        jid=copy.jid,
        due=copy.due,
        bury=copy.bury,
        fault=copy.fault,
        summary=copy.summary or read.summary,
        key=read.key if copy.key is None else copy.key,
    )


def brought_over(stream: str, pos: Position, again: Again) -> Pending:
    """The pending entry that one of an earlier incarnation is."""
    read = _arrived(stream, pos, again.jid, again.body)
    id_ = pos.id if again.late else again.id
    return replace(read, id=id_, jid=again.jid, due=again.due, bury=again.bury, fault=again.fault or read.fault)


def _arrived(stream: str, pos: Position, jid: str, raw: bytes) -> Pending:
    return pending(stream, pos, read_one(stream, raw, jid=jid))


# The wire.


def write_again(again: Again) -> dict[str, Any]:
    """The entry that brings an earlier incarnation's entry over; its body as text, or base64 where it is none."""
    late = {"late": True} if again.late else {}
    return {"type": "again", "id": again.id} | _write_state(again) | late | write_body(again.body)


def write_carry(copy: Carry) -> dict[str, Any]:
    """The entry that carries one forward."""
    fields = {"type": "carry", "id": copy.id, "rev": list(copy.rev)} | _write_state(copy)
    if copy.summary is not None:
        fields["summary"] = [*copy.summary[:-1], list(copy.summary.tags)]
    if copy.key is not None:
        fields["key"] = copy.key.hex()
    return fields | write_body(copy.body)


def read_again(value: Mapping[str, Any]) -> Again:
    """Raises KeyError, TypeError, ValueError for what is none."""
    id_ = values.text(value["id"])
    if "/" not in id_:
        raise ValueError
    return Again(id_, *_read_state(value), read_body(value), late=value.get("late") is True)


def read_carry(value: Mapping[str, Any]) -> Carry:
    """Raises KeyError, TypeError, ValueError for what is none."""
    offset, item = value["rev"]
    return Carry(
        values.text(value["id"]),
        Position(values.whole(offset), values.whole(item)),
        *_read_state(value),
        read_body(value),
        summary=None if value.get("summary") is None else _read_summary(*value["summary"]),
        key=None if value.get("key") is None else bytes.fromhex(value["key"]),
    )


def _write_state(copy: Again | Carry) -> dict[str, Any]:
    fault = {} if copy.fault is None else {"fault": list(copy.fault)}
    return {"jid": copy.jid, "due": copy.due, "bury": copy.bury} | fault


def _read_state(value: Mapping[str, Any]) -> tuple[str, float | None, bool, tuple[str, str] | None]:
    due, fault = value.get("due"), value.get("fault")
    return (
        values.line(value["jid"]),
        None if due is None else values.number(due),
        value.get("bury") is True,
        None if fault is None else (values.line(fault[0]), values.line(fault[1])),
    )


def write_body(body: bytes) -> dict[str, str]:
    """An entry's bytes as a member: text, or base64 where they are none."""
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def read_body(value: Mapping[str, Any]) -> bytes:
    """The bytes that it holds; raises as `read_carry`."""
    if "body_base64" in value:
        return base64.b64decode(value["body_base64"])
    return values.line(value["body"]).encode()


def _read_summary(*given: Any) -> Summary:
    cls, queue, count, error_class, error_message, at, tags = given
    return Summary(
        values.line(cls),
        values.line(queue),
        values.whole(count),
        values.line(error_class),
        values.line(error_message),
        None if at is None else values.number(at),
        tuple(values.line(tag) for tag in tags),
    )
