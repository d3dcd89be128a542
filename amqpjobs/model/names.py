"""The names of the topology: what any client in any language may rely on (docs/protocol.md)."""

from __future__ import annotations

import re

JOBS_EXCHANGE = "jobs.direct"
DEAD_EXCHANGE = "jobs.dead"
UNROUTED = "jobs.unrouted"
REJECTED = "jobs.rejected"
LEADER_QUEUE = "jobs.leader"
QUEUE_PREFIX = "queue."

SCHEDULED = "scheduled_jobs"
RETRIES = "retries"
DEAD = "dead_jobs"
HEARTBEATS = "heartbeats"
METRICS = "job_metrics"
EVENTS = "job_events"
CONTROLS = "controls"
CHECKPOINTS = "checkpoints"
AUDIT = "audit"
ENQUEUED = "enqueued"
"""The enqueue log: only where it is switched on."""
LOG_EXCHANGE = "jobs.log"
"""What it gets from the broker, where it is bound."""

STREAMS = (SCHEDULED, RETRIES, DEAD, HEARTBEATS, METRICS, EVENTS, CONTROLS, CHECKPOINTS, AUDIT)
DELAYED = (SCHEDULED, RETRIES, DEAD)
"""The streams whose entries wait for something: a time (scheduled, retries) or a person (dead)."""

DEFAULT_QUEUE = "default"
MAX_PRIORITY = 10

_QUEUE_NAME = re.compile(r"[A-Za-z0-9._:\-]{1,200}")


def is_queue_name(name: object) -> bool:
    """Whether `name` may be a queue's: 1 to 200 of ASCII letters, digits and `._-:`."""
    return isinstance(name, str) and _QUEUE_NAME.fullmatch(name) is not None


def broker_queue(name: str) -> str:
    """The broker's name for the logical queue `name`: `default` is kept in `queue.default`."""
    return QUEUE_PREFIX + name


def log_exchange(name: str) -> str:
    """The exchange beside the queue `queue.{name}`: it puts on record what goes to that queue, and goes with it."""
    return f"{LOG_EXCHANGE}.{name}"


def bare_mark(name: str) -> str:
    """The queue, always empty, whose existence says that the bare queue `name` holds jobs for the job queue `name`."""
    return f"jobs.compat.{name}"


def is_reserved(name: str) -> bool:
    """Whether the broker's queue of this bare name is, or might be, another one of ours."""
    return name in STREAMS or name == ENQUEUED or name.startswith(("jobs.", QUEUE_PREFIX, "amq."))
