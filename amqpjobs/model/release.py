"""What is published when an entry's time has come: the job's own bytes, with only what a release sets anew."""

from __future__ import annotations

from typing import Any, NamedTuple

from amqpjobs.model import names, text
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, ScheduledJob, Unreadable

UNROUTABLE = "Unroutable"


class Release(NamedTuple):
    """A job to publish to `jobs.direct` with `queue` as its key; `properties` as in the entry."""

    queue: str
    body: bytes
    priority: int | None
    properties: dict[str, Any]


def release(kind: str, entry: ScheduledJob | RetryEntry | DeadJob, *, now: float) -> Release | Unreadable:
    """The job of an entry of the stream `kind`, ready to run at `now`; `Unreadable` when it can go nowhere.

    A dead job begins anew: its retries, and the workers lost to it, no longer count.
    """
    job, job_raw = entry.job, entry.job_raw
    if job is None or job_raw is None:
        return Unreadable("Malformed", "the record has no job that could run", entry.raw, entry.jid)
    if not names.is_queue_name(job.queue):
        problem = f"queue: {text.dump(job.queue[:80]).decode()} cannot be the name of one"
        return Unreadable(UNROUTABLE, problem, entry.raw, entry.jid, job.queue, job.cls)
    changes = {
        "jid": entry.jid,
        "queue": job.queue,
        "retry_count": _retry_count(kind, entry, job),
        "enqueued_at": now,
        "created_at": _created_at(job, now),
    }
    drop = ("stall_count",) if kind == names.DEAD else ()
    body = text.with_members(job_raw, changes, drop)
    priority = job.priority if job.priority is not None else entry.properties.get("priority")
    return Release(job.queue, body, priority, entry.properties)


def _retry_count(kind: str, entry: ScheduledJob | RetryEntry | DeadJob, job: Job) -> int:
    if kind == names.DEAD:
        return 0
    return entry.retry_count if isinstance(entry, RetryEntry) else job.retry_count


def _created_at(job: Job, now: float) -> float:
    """When it was first sent, as far as it tells: its `enqueued_at` is about to be overwritten."""
    if job.created_at is not None:
        return job.created_at
    return now if job.enqueued_at is None else job.enqueued_at
