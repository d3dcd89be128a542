"""What a running job may know about itself, wherever its code runs: on the loop or in a thread."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class JobContext:
    """The job that runs here. `attempt` counts from 1; times are seconds since 1970."""

    jid: str
    name: str
    queue: str
    attempt: int
    retries_left: int
    enqueued_at: float | None
    started_at: float
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    cancelled: bool = False
    """Set when the result is no longer wanted (the job was cancelled, its time limit passed, or the worker's stop did):
    a thread cannot be stopped from outside, so long loops look here."""


_current: ContextVar[JobContext | None] = ContextVar("amqpjobs_job", default=None)


def current() -> JobContext:
    """The job that this code runs for. Raises LookupError outside of a job."""
    context = _current.get()
    if context is None:
        raise LookupError("no job runs here: amqpjobs.current() is for code that a worker called")
    return context


def running() -> JobContext | None:
    """The job that this code runs for, or None."""
    return _current.get()


def enter(context: JobContext) -> None:
    """Make `context` the current job of the calling context (a task's or a thread's own copy)."""
    _current.set(context)
