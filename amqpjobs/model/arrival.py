"""What an entry is at its first appearance in a delayed stream: what it says, and the pending entry it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from amqpjobs.model import names, reading, text
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.pending import Pending, Summary
from amqpjobs.model.protocol import Position

Readable = ScheduledJob | RetryEntry | DeadJob

_READERS: Mapping[str, Callable[..., Readable | Unreadable]] = {
    names.SCHEDULED: reading.read_scheduled,
    names.RETRIES: reading.read_retry,
    names.DEAD: reading.read_dead,
}


def read_entry(stream: str, piece: reading.Piece, *, jid: str) -> Readable | Unreadable:
    """What an entry of `stream` says; `jid` names it where it does not name itself."""
    return _READERS[stream](piece, jid=jid)


def read_pending(stream: str, entry: Pending) -> Readable | Unreadable:
    """The message that a pending entry is, from its bytes, under the jid that the fold gave it."""
    return read_one(stream, entry.raw, jid=entry.jid)


def read_one(stream: str, raw: bytes, *, jid: str) -> Readable | Unreadable:
    """One entry by itself: an array here is no list of entries, it was refused as an item of one."""
    try:
        value = text.parse(raw)
    except text.NotJson as error:
        return Unreadable("Malformed", f"not JSON: {error}", raw, jid, None, None)
    return read_entry(stream, reading.Piece(0, raw, value), jid=jid)


def derived_jid(stream: str, pos: Position, raw: bytes) -> str:
    """The jid of an entry that names none: the same in every view, whenever it began to read."""
    seed = f"{stream}\0{pos.offset}\0{pos.item}\0".encode() + raw
    return hashlib.blake2b(seed, digest_size=12).hexdigest()


def pending(stream: str, pos: Position, read: Readable | Unreadable) -> Pending:
    """The pending entry that appears at `pos`.

    What cannot be read waits for its burial: the leader records it in the dead set, once, and never reads it again. In
    the dead set itself it is a record as it stands.
    """
    if not isinstance(read, Unreadable):
        return _readable(pos, read)
    dead = stream == names.DEAD
    return Pending(
        id=pos.id,
        pos=pos,
        rev=pos,
        jid=read.jid or derived_jid(stream, pos, read.raw),
        due=None if dead else 0.0,
        raw=read.raw,
        summary=Summary(read.cls or "", read.queue or "", 0, read.error_class, read.error_message, None, ()),
        bury=not dead,
        fault=(read.error_class, read.error_message),
    )


def _readable(pos: Position, read: Readable) -> Pending:
    match read:
        case ScheduledJob():
            due: float | None = read.due
            key = b""
            summary = _summary(read.job, read.job.retry_count, "", "", read.job.enqueued_at)
        case RetryEntry():
            due = read.due
            key = _job_key(read.job)
            summary = _summary(read.job, read.retry_count, read.error_class, read.error_message, read.failed_at)
        case DeadJob():
            due = None
            key = (read.origin or repr(read.died_at if read.failed_at is None else read.failed_at)).encode()
            summary = _summary(read.job, read.retry_count, read.error_class, read.error_message, read.died_at)
            if read.job is None:
                summary = summary._replace(queue=read.queue or "")
    return Pending(id=pos.id, pos=pos, rev=pos, jid=read.jid, due=due, raw=read.raw, summary=summary, key=key)


def _summary(job: Job | None, count: int, error_class: str, error_message: str, at: float | None) -> Summary:
    if job is None:
        return Summary("", "", count, error_class, error_message, at, ())
    return Summary(job.cls, job.queue, count, error_class, error_message, at, tuple(job.tags))


def _job_key(job: Job) -> bytes:
    """What makes two retry entries of one jid the same job: its class and its arguments."""
    return hashlib.blake2b(repr((job.cls, job.args)).encode("utf-8", "backslashreplace"), digest_size=12).digest()
