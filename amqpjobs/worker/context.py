"""What a running job may know about itself, wherever its code runs: on the loop or in a thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqpjobs import payload


class Note(NamedTuple):
    """What a job says of itself while it runs; None where it says nothing."""

    lines: tuple[str, ...] = ()
    progress: float | None = None
    output: Any = None


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
    teller: Callable[[Note], None] | None = field(default=None, repr=False)
    """Of a tracked job: takes what it says of itself, from any thread."""

    def tell(self, *lines: str, progress: float | None = None, output: Any = None) -> None:
        """Lines for the log of a tracked job, how far it is, and what it has put out so far (what JSON can carry).

        They appear on its page as they come; of a plain job nothing becomes of them. Raises TypeError for
        an output that JSON cannot carry, ValueError for a progress that is no finite number.
        """
        if output is not None:
            payload.carry(self.name, {"output": output})
        if progress is not None and not math.isfinite(progress):
            raise ValueError(f"progress is a finite number, not {progress}")
        if self.teller is not None:
            self.teller(Note(lines, progress, output))


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
