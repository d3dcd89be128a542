"""Runs one job's function, on the loop or in a thread, and says how it ended. Nothing that a function does escapes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqpjobs.clock import Clock
from amqpjobs.errors import Fail, JobTimeout, Retry, Snooze, UnknownJobClass
from amqpjobs.jobs import Registry
from amqpjobs.model.messages import Job
from amqpjobs.model.outcomes import Failure
from amqpjobs.worker.context import JobContext, enter
from amqpjobs.worker.subscription import Delivery
from amqpjobs.worker.threads import ThreadPool

if TYPE_CHECKING:
    from amqpjobs.worker.leases import Lease


@dataclass(slots=True)
class Ended:
    """How a run ended: well (both None), with a failure, or with the wish to run again later without counting."""

    failure: Failure | None = None
    snooze: float | None = None
    leftover: Awaitable[Any] | None = None
    """A coroutine that a plain function returned in place of running: it is awaited on the loop."""


_WELL = Ended()


class Run:
    """One run of one job. `interrupt` ends an async one; a thread can only be told (`context.cancelled`)."""

    __slots__ = (
        "_alarm",
        "_late",
        "_never_began",
        "_task",
        "began",
        "cancelled",
        "context",
        "delivery",
        "interrupted",
        "job",
        "lease",
        "passed",
        "started",
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
        self.started = False
        """Whether a task of its own has begun to await it."""
        self._task: asyncio.Task[None] | None = None
        self._never_began: Callable[[Run, Ended], None]
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

    def awaited_by(self, task: asyncio.Task[None], never_began: Callable[[Run, Ended], None]) -> None:
        """`task` awaits it, and tells how it ended; `never_began` is told that where the task cannot."""
        self._task = task
        self._never_began = never_began
        if self.cancelled:  # while a thread still made what is awaited here
            self._cancel()

    def ends_task(self) -> bool:
        """Its task is over; whether it had one."""
        had, self._task = self._task is not None, None
        return had

    def _cancel(self) -> None:
        if self._task is None:
            return
        if not self.started:  # a task that is cancelled before its first step has no chance to tell
            self._task.add_done_callback(self._cancelled_early)
        self._task.cancel()

    def _cancelled_early(self, _: asyncio.Task[None]) -> None:
        if not self.started:
            self.started = True
            self._never_began(self, Ended(failure_of(asyncio.CancelledError())))

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


QUICK = 0.005
"""Seconds that calls in threads take at most on average where the next are handed over before a thread is free."""
TOGETHER = 10
"""Runs that are told of at once.

A hundred that ended in one millisecond would otherwise all be recorded before the first of the next hundred begins:
these then wait, and end, together, and each round takes its work on top of the jobs' own time.
"""
_FIRST_GUESS = 0.1
_WEIGHT = 1 / 16


class Executor:
    """Finds and runs the functions of a registry.

    A thread that finds its next call waiting goes on at once. Else it sleeps until the loop has heard of its end, and
    wakes again: for a call of a millisecond that is half as long again. So where calls are quick, and nothing runs on
    the loop, as many again may be started as there are threads; `withdraw` takes back what no thread has begun.
    """

    def __init__(self, registry: Registry, concurrency: int, clock: Clock) -> None:
        self.on_ended: Callable[[Sequence[tuple[Run, Ended]]], None] = lambda ended: None
        """Called on the loop, outside of every job's context, with what has ended since it was called last."""
        self._registry = registry
        self._threads = ThreadPool(concurrency, self._settle)
        self._clock = clock
        self._base = contextvars.copy_context()
        self._ended: list[tuple[Run, Ended]] = []
        self._settling = False
        self._waiting: set[Run] = set()
        self._tasks = 0
        self._concurrency = concurrency
        self._mean = _FIRST_GUESS

    @property
    def ahead(self) -> int:
        """How many more runs than there are slots may be started now, of those that `may_wait`."""
        return self._concurrency if self._mean < QUICK and not self._tasks else 0

    def may_wait(self, job: Job) -> bool:
        """Whether it runs in a thread, and has no time that begins with its start or ends before it."""
        function = self._registry.get(job.cls)
        return function is not None and not function.is_async and job.timeout is None and job.expires_in is None

    def begun(self, run: Run) -> bool:
        """Whether it was really begun, not only handed to the threads."""
        return run not in self._waiting

    def withdraw(self, run: Run) -> bool:
        """Take it back, unless a thread has begun it; whether that came true. `on_ended` will not tell of it then."""
        return self._took(run)

    def _took(self, run: Run) -> bool:
        """A thread and the loop may both try; a set gives each element away once."""
        try:
            self._waiting.remove(run)
        except KeyError:
            return False
        return True

    def start(self, run: Run) -> None:
        """Begin the job; `on_ended` tells when it has ended. Raises nothing.

        A thread cannot be stopped: a sync function that overruns keeps its slot, and fails when it returns.
        """
        function = self._registry.get(run.job.cls)
        if function is None:
            self._tell(run, self._unknown(run.job))
            return
        context = self._base.copy()  # each job's own, without what another one has set
        context.run(enter, run.context)
        if function.is_async:
            self._on_loop(run, self._await(run, function.function), context)
        else:
            self._in_thread(run, function.function, context)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()

    def _on_loop(self, run: Run, awaited: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
        """Await it in a task of its own, cancelled at the time limit; a task that ignores that goes on."""
        loop = asyncio.get_running_loop()
        self._tasks += 1
        run.awaited_by(loop.create_task(awaited, context=context), self._tell)
        if run.job.timeout is not None:
            run.limit(loop)

    def _in_thread(self, run: Run, function: Callable[..., Any], context: contextvars.Context) -> None:
        def called() -> Ended | None:
            return _called(run, function, self._clock) if self._took(run) else None

        def returned(ended: Ended | None) -> None:
            if ended is None:
                return
            self._mean += (run.passed - self._mean) * _WEIGHT
            if ended.leftover is None:
                self._ended.append((run, ended))
            else:
                run.unlimit()
                self._on_loop(run, self._await_too(run, ended.leftover), context)

        if run.job.timeout is not None:
            run.limit(asyncio.get_running_loop())
        self._waiting.add(run)
        self._threads.submit(called, context, returned)

    async def _await(self, run: Run, function: Callable[..., Any]) -> None:
        # BaseException: a SystemExit of a handler must fail one try, not end the worker.
        run.started = True
        run.began = self._clock.steady()
        args = run.job.args
        ended = _WELL
        try:
            await (function(*args) if isinstance(args, list) else function(**args))
        except BaseException as error:
            ended = _ended_by(error)
        run.passed = self._clock.steady() - run.began
        self._tell(run, ended)

    async def _await_too(self, run: Run, leftover: Awaitable[Any]) -> None:
        run.started = True
        ended = _WELL
        try:
            await leftover
        except BaseException as error:  # see _await
            ended = _ended_by(error)
        run.passed = self._clock.steady() - run.began
        self._tell(run, ended)

    def _tell(self, run: Run, ended: Ended) -> None:
        """All that ends in one turn of the loop is told at once: a callback for each would cost as much as the job."""
        if run.ends_task():
            self._tasks -= 1
        self._ended.append((run, ended))
        if not self._settling:
            self._settling = True
            with contextlib.suppress(RuntimeError):  # the loop is gone: the worker has stopped without this job
                asyncio.get_running_loop().call_soon(self._settle, context=self._base)

    def _settle(self) -> None:
        """Tell of some, and of the others once the jobs that were begun in their places have had their first step."""
        ended, self._ended = self._ended[:TOGETHER], self._ended[TOGETHER:]
        self._settling = bool(self._ended)
        if self._settling:
            asyncio.get_running_loop().call_soon(self._settle, context=self._base)
        if ended:
            self.on_ended([(run, run.concluded(how)) for run, how in ended])

    def _unknown(self, job: Job) -> Ended:
        known = ", ".join(sorted(self._registry)[:20]) or "none"
        return Ended(failure_of(UnknownJobClass(f"no function is registered as {job.cls!r}; this worker has: {known}")))


def _called(run: Run, function: Callable[..., Any], clock: Clock) -> Ended:
    if run.cancelled:  # while it waited for a thread
        return _WELL
    run.context.started_at = clock.wall()
    run.began = clock.steady()
    args = run.job.args
    try:
        value = function(*args) if isinstance(args, list) else function(**args)
    except BaseException as error:  # see _awaited
        return _ended_by(error)
    finally:
        run.passed = clock.steady() - run.began
    return Ended(leftover=value) if inspect.iscoroutine(value) else _WELL


def _ended_by(error: BaseException) -> Ended:
    if isinstance(error, Snooze):
        return Ended(snooze=error.in_)
    if isinstance(error, Retry):
        return Ended(failure_of(error, retry_in=error.in_))
    return Ended(failure_of(error, final=isinstance(error, Fail)))


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
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
    except BaseException as worse:
        return f"<no traceback: formatting it raised {type(worse).__name__}>"
