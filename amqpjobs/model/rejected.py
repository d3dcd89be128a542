"""What a dead-letter policy sends to `dead_jobs`: a job as it was in its queue, and scalar headers that say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amqpjobs.model import fields, names, text
from amqpjobs.model.intake import read_job
from amqpjobs.model.messages import Job, Unreadable

REJECTED = "Rejected"

_WHY = {
    "rejected": "a worker rejected this job without a record of why",
    "delivery_limit": "this job came back to its queue too often: its workers died or gave it back",
    "expired": "this job waited in its queue for longer than the broker was told to keep it",
    "maxlen": "the queue was full",
}


def rejected(body: bytes, headers: Mapping[str, Any]) -> Unreadable | None:
    """The record that such a message is; None for a message that did not come from a job queue that way."""
    queue = headers.get("x-first-death-queue")
    if not isinstance(queue, str) or not queue.startswith(names.QUEUE_PREFIX) or _is_record(body):
        return None
    name = queue.removeprefix(names.QUEUE_PREFIX)
    why = headers.get("x-first-death-reason")
    reason = _WHY.get(why, f"the broker took it out: {fields.shown(why)}") if isinstance(why, str) else _WHY["rejected"]
    read = read_job(body, queue=name, jid="")
    message = f"{reason} (queue {text.safe(name)})"
    if isinstance(read, Job):
        return Unreadable(REJECTED, message, body, read.jid or None, read.queue, read.cls)
    return replace(read, error_class=REJECTED, error_message=f"{message}; {read.error_message}", jid=read.jid or None)


def _is_record(body: bytes) -> bool:
    """Whether a worker put a record of its own there."""
    try:
        value = text.parse(body)
    except text.NotJson:
        return False
    return isinstance(value, dict) and value.get("type") == "dead_job"
