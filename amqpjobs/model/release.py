"""What is published when an entry's time has come: the job's own bytes, with only what a release sets anew."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from amqpjobs.model import fields, names, text
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.pending import Pending

UNROUTABLE = "Unroutable"


class Release(NamedTuple):
    """A job to publish to `jobs.direct` with `queue` as its key; `properties` as in the entry."""

    queue: str
    body: bytes
    priority: int | None
    properties: dict[str, Any]


def quick(kind: str, entry: Pending, *, now: float) -> Release | None:
    """What `release` makes of an entry with nothing odd about it, for a fourth of the price; None: it must be read.

    A leader releases thousands a second, and their fold has read them once.
    """
    raw = entry.raw
    if kind == names.DEAD or entry.bury or b"\\" in raw or b'"properties"' in raw:
        return None
    found = text.last_member(text.bare(raw), "job")
    if found is None or type(found[1]) is not dict:
        return None
    job_raw, job = found
    get = job.get
    queue, jid, priority = get("queue"), entry.jid, get("priority")
    if type(queue) is not str or not _may_be_queue(queue) or type(get("class")) is not str or not jid.isascii():
        return None
    created_at = _first_sent(fields.instant_or_none(get("created_at")), fields.instant_or_none(get("enqueued_at")), now)
    count = entry.summary.retry_count if kind == names.RETRIES else fields.count(get("retry_count"))
    changes = {"jid": jid, "queue": queue, "retry_count": count, "enqueued_at": now, "created_at": created_at}
    body = text.spliced(job_raw, job, changes)
    return None if body is None else Release(queue, body, None if priority is None else fields.priority(priority), {})


_may_be_queue = functools.lru_cache(1024)(names.is_queue_name)


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
        "created_at": _first_sent(job.created_at, job.enqueued_at, now),
    }
    drop = ("stall_count",) if kind == names.DEAD else ()
    body = text.with_members(job_raw, changes, drop)
    priority = job.priority if job.priority is not None else entry.properties.get("priority")
    return Release(job.queue, body, priority, entry.properties)


def _retry_count(kind: str, entry: ScheduledJob | RetryEntry | DeadJob, job: Job) -> int:
    if kind == names.DEAD:
        return 0
    return entry.retry_count if isinstance(entry, RetryEntry) else job.retry_count


def _first_sent(created_at: float | None, enqueued_at: float | None, now: float) -> float:
    """When it was first sent, as far as it tells: its `enqueued_at` is about to be overwritten."""
    if created_at is not None:
        return created_at
    return now if enqueued_at is None else enqueued_at
