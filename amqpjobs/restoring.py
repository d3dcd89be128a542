"""Undoing a deletion: the command that brings an entry back, with the bytes that its stream still holds."""

from __future__ import annotations

from amqpjobs.action import Order, Record, Result
from amqpjobs.clock import Clock
from amqpjobs.model import lookback
from amqpjobs.model.protocol import Command, Op, Position, Target, Verdict
from amqpjobs.streams import fetch
from amqpjobs.streams.audit_store import Deletion
from amqpjobs.streams.link import Link


class Restorer:
    """Makes commands; sends none. `record` tells what was deleted, by whom ever it was ordered."""

    def __init__(self, link: Link, record: Record, clock: Clock) -> None:
        self._link = link
        self._record = record
        self._clock = clock

    async def command(self, order: Order, job: Target) -> tuple[Deletion, Command] | Result:
        """The command that undoes the last deletion of a job, or why there is none."""
        record, stream = self._record, order.stream
        deletion = await record.follower.query(lambda: record.store.deletion(job.jid, job.entry, stream))
        if deletion is None or deletion.job.entry is None:
            return Result(job.jid, job.entry, Verdict.NOT_FOUND, "no deletion of it is on record")
        body = await self._bytes(deletion)
        if body is None:
            return Result(*job, Verdict.NOT_FOUND, f"{stream} no longer holds its bytes")
        command = Command(
            uuid=f"undo {deletion.command} {deletion.job.entry}",  # rule 18: one deletion is undone once
            op=Op.RESTORE,
            targets=(Target(job.jid, deletion.job.entry),),
            at=self._clock.wall(),
            by=order.by,
            epoch=deletion.epoch,
            due=deletion.job.due,
            body=body,
        )
        return deletion, command

    async def _bytes(self, deletion: Deletion) -> bytes | None:
        """Where the entry stood last, or else where it first appeared: retention takes the oldest."""
        jid, entry, pos, _ = deletion.job
        assert entry is not None, "a deletion names its entry"
        connection = await self._link.connection(timeout=self._link.settings.publish_timeout)
        for place in dict.fromkeys(p for p in (pos, _first(entry)) if p is not None):
            message = await fetch.message_at(connection, deletion.stream, place.offset)
            if message is None:
                continue
            found = lookback.entry_of(
                deletion.stream, place, message.body, message.properties.headers,
                jid=jid, entry=entry, epoch=deletion.epoch,
            )  # fmt: skip
            if found is not None:
                return found.raw
        return None


def _first(entry: str) -> Position | None:
    """Where an entry first appeared, as its identity tells; None where that was in another life of the stream."""
    offset, _, item = entry.partition(":")
    return Position(int(offset), int(item or 0)) if offset.isdecimal() and (item or "0").isdecimal() else None
