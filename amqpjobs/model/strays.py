"""The dead record of a job that reached no queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpjobs.model import fields, names, outcomes
from amqpjobs.model.intake import read_job
from amqpjobs.model.messages import Job, Unreadable

UNROUTABLE = "Unroutable"


def stray(
    raw: bytes,
    key: str,
    reason: str,
    *,
    now: float,
    jid: str,
    message_id: str | None,
    worker: str,
    properties: Mapping[str, Any],
) -> bytes:
    """The `dead_jobs` entry for a message that was published with the routing key `key` and could not be delivered.

    A job that names a queue that can be, in itself or by its key, is kept as a job, so that it can be sent there by
    hand; anything else as its bytes. `jid` is its name when it and the message have none.
    """
    job = read_job(raw, queue=key, jid=jid, message_id=message_id)
    if isinstance(job, Job) and names.is_queue_name(job.queue):
        wanted = job.model_copy(update={"dead": True})  # it asked not to be kept when it fails: it never ran
        carried = fields.properties(properties)
        failure = outcomes.Failure(UNROUTABLE, reason, "", final=True)
        entry = outcomes.failed(wanted, failure, now=now, jitter=0.0, worker=worker, properties=carried).entry
        if entry is not None:
            return entry
    cls = job.cls
    name = job.jid or jid
    return outcomes.unreadable(
        Unreadable(UNROUTABLE, reason, raw, name, None, cls), now=now, jid=jid, queue=None, worker=worker
    )
