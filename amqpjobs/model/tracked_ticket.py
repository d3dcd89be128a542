"""How AMQP workers come by tracked jobs: the message that offers one, and the command that a delivered job becomes.

An offer is a job as any other (`docs/protocol.md`), so that it has its place among the others of its queue; who gets it
asks for the tracked job that it names before running it. It may be stale, or come twice: the fold gives a job once.
"""

from __future__ import annotations

from typing import Any

from amqpjobs.model import text
from amqpjobs.model.messages import Job
from amqpjobs.model.tracked import Tracked
from amqpjobs.model.tracked_commands import Begin, Dispatch, Take
from amqpjobs.model.tracked_priority import from_amqp, to_amqp

LEASE = 30.0
"""Seconds of silence after which a job that an AMQP worker holds is given to another."""
MOST_LOST = 3
"""So often a job may be lost by its workers before it has failed."""
MEMBER = "tracked"
"""The member of an offer that names the tracked job."""


def offer(job: Tracked, *, now: float) -> bytes:
    """The message that offers a tracked job in the queue of its name."""
    policy = job.policy
    made: dict[str, Any] = {
        "jid": job.jid or str(job.id),
        "class": job.type,
        "args": text.Verbatim(arguments(job.data)),
        "queue": job.queue,
        "retry": policy.retries,
        "retry_count": job.retried,
        "retry_delays": list(policy.retry_delays) or None,
        "min_backoff": policy.min_backoff,
        "max_backoff": policy.max_backoff,
        "enqueued_at": now,
        "created_at": job.created_at,
        "tags": list(job.tags) or None,
        "priority": to_amqp(job.priority),
        "track": True,
        MEMBER: job.id,
    }
    return text.dump({name: value for name, value in made.items() if value is not None})


def arguments(data: bytes) -> bytes:
    """A job's data as arguments of a call: a list or an object as it is, null for none, all else as the only one."""
    if data[:1] in (b"[", b"{"):
        return data
    return b"[]" if data == b"null" else b"[%b]" % data


def asked(job: Job, worker: str) -> Take | Begin:
    """What a worker that was delivered `job` asks for: the tracked job that is offered by it, or that it becomes."""
    number = text.parse(job.raw).get(MEMBER)
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return Take(job=number, worker=worker)
    return Begin(dispatch(job), worker)


def dispatch(job: Job, run_at: float | None = None) -> Dispatch:
    """The tracked job that `job` is. What it says of itself goes over the settings of its queue."""
    settings: dict[str, Any] = {
        "timeout": job.timeout or 0.0,
        "heartbeat_timeout": LEASE,
        "max_stalls": MOST_LOST,
        "retries": job.retry,
        "retry_delays": job.retry_delays,
        "min_backoff": job.min_backoff,
        "max_backoff": job.max_backoff,
    }
    return Dispatch(
        job.queue, text.member(job.raw, "args") or b"[]", job.key or "", job.cls, from_amqp(job.priority),
        tuple(job.tags), run_at, {name: value for name, value in settings.items() if value is not None},
        jid=job.jid, amqp=True,
    )  # fmt: skip
