"""The dead record of an entry that the leader takes out of a delayed set."""

from __future__ import annotations

from typing import Any

from amqpjobs.model import text
from amqpjobs.model.messages import DeadJob, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.outcomes import kept


def burial(
    read: ScheduledJob | RetryEntry | DeadJob | Unreadable,
    *,
    jid: str,
    fault: tuple[str, str],
    origin: str,
    now: float,
    worker: str,
) -> bytes:
    """One `dead_job` entry: why (`fault`: error class and message), and all of the job, or the raw bytes.

    `origin` ("stream/entry") is the record's identity: a burial repeated after a crash is the same record.
    """
    record: dict[str, Any] = {
        "type": "dead_job",
        "jid": jid,
        "died_at": now,
        "retry_count": 0,
        "error_class": fault[0],
        "error_message": fault[1],
        "backtrace": "",
        "origin": origin,
        "worker_identity": worker,
    }
    return text.dump(record | _body(read))


def _body(read: ScheduledJob | RetryEntry | DeadJob | Unreadable) -> dict[str, Any]:
    match read:
        case Unreadable():
            return _raw(read)
        case RetryEntry():
            kept = {"retry_count": read.retry_count, "failed_at": read.failed_at, "backtrace": read.backtrace or ""}
            return kept | {"job": text.Verbatim(read.job_raw)} | _properties(read.properties)
        case ScheduledJob():
            return {"job": text.Verbatim(read.job_raw)} | _properties(read.properties)
        case DeadJob():
            raise TypeError("a dead job is buried already")


def _raw(bad: Unreadable) -> dict[str, Any]:
    named = {"queue": bad.queue} if bad.queue else {}
    return named | kept(bad.raw)


def _properties(properties: dict[str, Any]) -> dict[str, Any]:
    return {"properties": properties} if properties else {}
