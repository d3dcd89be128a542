"""One run of one job: how it is ended before its time, and the words for how it ended."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqpjobs.errors import JobTimeout
from amqpjobs.model.messages import Job
from amqpjobs.model.outcomes import Failure
from amqpjobs.worker.context import JobContext
from amqpjobs.worker.subscription import Delivery

if TYPE_CHECKING:
    from amqpjobs.worker.leases import Lease

_OURS = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH120, PTH118


@dataclass(slots=True)
class Ended:
    """How a run ended: well (both None), with a failure, or with the wish to run again later without counting."""

    failure: Failure | None = None
    snooze: float | None = None
    leftover: Awaitable[Any] | None = None
    """A coroutine that a plain function returned in place of running: it is awaited on the loop."""


class Run:
    """One run of one job. `interrupt` ends an async one; a thread can only be told (`context.cancelled`)."""

    __slots__ = (
        "_alarm",
        "_late",
        "_task",
        "began",
        "cancelled",
        "context",
        "delivery",
        "interrupted",
        "job",
        "lease",
        "passed",
    )

    def __init__(self, job: Job, context: JobContext, delivery: Delivery) -> None:
        self.job = job
        self.context = context
        self.delivery = delivery
        self.lease: Lease | None = None
        """Of a tracked job, once it was granted."""
        self.interrupted = False
        self.cancelled = False
        self.began = self.passed = 0.0
        """Steady seconds: when the function was called, and how long it took."""
        self._late = False
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def interrupt(self) -> None:
        """Cancel it for the worker's own reasons: its end is then no failure of the job."""
        self.interrupted = self.context.cancelled = True
        self._cancel()

    def cancel(self) -> None:
        """Ask it to stop because somebody cancelled the job: however it ends, it is not tried again."""
        if not self.cancelled:
            self.cancelled = self.context.cancelled = True
            self._cancel()

    def awaited_by(self, task: asyncio.Task[None]) -> None:
        """`task` awaits it from here on."""
        self._task = task
        if self.cancelled:  # while a thread still made what is awaited here
            self._cancel()

    def ends_task(self) -> bool:
        """Its task is over; whether it had one."""
        had, self._task = self._task is not None, None
        return had

    def _cancel(self) -> None:
        """A task that is cancelled before its first step could tell nobody: that step looks at `context.cancelled`."""
        if self._task is not None and self.began:
            self._task.cancel()

    def limit(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the job know, and cancel its task, once its time is over."""
        assert self.job.timeout is not None
        self._alarm = loop.call_later(self.job.timeout, self._overdue)

    def unlimit(self) -> None:
        """It ended."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _overdue(self) -> None:
        self._late = True
        self.context.cancelled = True
        self._cancel()

    def concluded(self, ended: Ended) -> Ended:
        """It is over. A run over its time limit ended with JobTimeout, whatever it did."""
        if self._alarm is not None:
            self.unlimit()
        limit = self.job.timeout
        if limit is None or self.interrupted or self.cancelled or not (self._late or self.passed >= limit):
            return ended
        return _overran(self.job, self.passed, ended)


def _overran(job: Job, passed: float, ended: Ended) -> Ended:
    late = failure_of(JobTimeout(f"ran {passed:.3f} s, its time limit is {job.timeout:g} s"))
    if ended.failure is None:
        return Ended(late)
    return Ended(Failure(late.error_class, late.error_message, ended.failure.backtrace))


def failure_of(error: BaseException, *, final: bool = False, retry_in: float | None = None) -> Failure:
    """The words for an exception. Never raises, whatever the exception's own methods do."""
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException as worse:
        message = f"<no message: str() of this {name} raised {type(worse).__name__}>"
    return Failure(name, message, _backtrace(error), final=final, retry_in=retry_in)


def _backtrace(error: BaseException) -> str:
    """The traceback from the handler's own code on; an error of the call itself (wrong arguments) has none of that."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
    except BaseException as worse:
        return f"<no traceback: formatting it raised {type(worse).__name__}>"
