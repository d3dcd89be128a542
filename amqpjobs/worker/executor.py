"""Runs one job's function, on the loop or in a thread, and says how it ended. Nothing that a function does escapes."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.errors import Fail, JobTimeout, Retry, Snooze, UnknownJobClass
from amqpjobs.jobs import JobFunction, Registry
from amqpjobs.model.messages import Job
from amqpjobs.model.outcomes import Failure
from amqpjobs.worker.context import JobContext, enter
from amqpjobs.worker.threads import ThreadPool


@dataclass(slots=True)
class Ended:
    """How a run ended: well (both None), with a failure, or with the wish to run again later without counting."""

    failure: Failure | None = None
    snooze: float | None = None
    leftover: Awaitable[Any] | None = None
    """A coroutine that a plain function returned in place of running: it is awaited on the loop."""


class Run:
    """One run of one job. `interrupt` ends an async one; a thread can only be told (`context.cancelled`)."""

    def __init__(self, job: Job, context: JobContext) -> None:
        self.job = job
        self.context = context
        self.interrupted = False
        self.cancelled = False
        self.duration_ms = 0.0
        self._task: asyncio.Task[Ended] | None = None

    def interrupt(self) -> None:
        """Cancel it for the worker's own reasons: its end is then no failure of the job."""
        self.interrupted = self.context.cancelled = True
        if self._task is not None:
            self._task.cancel()

    def cancel(self) -> None:
        """Ask it to stop because somebody cancelled the job: however it ends, it is not tried again."""
        if not self.cancelled:
            self.cancelled = self.context.cancelled = True
            if self._task is not None:
                self._task.cancel()

    async def on_loop(self, call: Callable[[], Awaitable[Any]], context: contextvars.Context) -> Ended:
        """Await `call()` in a task of its own, cancelled at the time limit; a task that ignores that holds its slot."""
        self._task = asyncio.create_task(_awaited(call), context=context)
        if self.cancelled:  # while a thread still made what is awaited here
            self._task.cancel()
        await asyncio.wait([self._task], timeout=self.job.timeout)
        if not self._task.done():
            self.context.cancelled = True
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._task.cancelled():  # before its first step: `_awaited` had no chance to say how it ended
            return Ended(failure_of(asyncio.CancelledError()))
        return self._task.result()


class Executor:
    """Finds and runs the functions of a registry."""

    def __init__(self, registry: Registry, concurrency: int, clock: Clock) -> None:
        self._registry = registry
        self._threads = ThreadPool(concurrency)
        self._clock = clock

    async def execute(self, run: Run) -> Ended:
        """Run the job to its end. Raises nothing; a run over its time limit ended with JobTimeout, whatever it did.

        A thread cannot be stopped: a sync function that overruns keeps its slot, and fails when it returns.
        """
        function = self._registry.get(run.job.cls)
        if function is None:
            return self._unknown(run.job)
        context = contextvars.copy_context()
        context.run(enter, run.context)
        began = self._clock.steady()
        ended = await self._call(run, function, context)
        passed = self._clock.steady() - began
        run.duration_ms = passed * 1000
        timeout = run.job.timeout
        if timeout is not None and passed >= timeout and not (run.interrupted or run.cancelled):
            return _overran(run.job, passed, ended)
        return ended

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()

    async def _call(self, run: Run, function: JobFunction[..., Any], context: contextvars.Context) -> Ended:
        call = _bound(function.function, run.job.args)
        if function.is_async:
            return await run.on_loop(call, context)
        ended = await self._in_thread(run, call, context)
        leftover = ended.leftover
        if leftover is None:
            return ended
        return await run.on_loop(lambda: leftover, context)

    async def _in_thread(self, run: Run, call: Callable[[], Any], context: contextvars.Context) -> Ended:
        timeout = run.job.timeout
        if timeout is None:
            return await self._threads.run(lambda: _called(call), context)  # type: ignore[no-any-return]
        alarm = asyncio.get_running_loop().call_later(timeout, setattr, run.context, "cancelled", True)
        try:
            return await self._threads.run(lambda: _called(call), context)  # type: ignore[no-any-return]
        finally:
            alarm.cancel()

    def _unknown(self, job: Job) -> Ended:
        known = ", ".join(sorted(self._registry)[:20]) or "none"
        return Ended(failure_of(UnknownJobClass(f"no function is registered as {job.cls!r}; this worker has: {known}")))


def _bound(function: Callable[..., Any], args: list[Any] | dict[str, Any]) -> Callable[[], Any]:
    return (lambda: function(**args)) if isinstance(args, dict) else (lambda: function(*args))


async def _awaited(call: Callable[[], Awaitable[Any]]) -> Ended:
    # BaseException: a SystemExit of a handler must fail one try, not end the worker.
    try:
        await call()
    except BaseException as error:
        return _ended_by(error)
    return Ended()


def _called(call: Callable[[], Any]) -> Ended:
    try:
        value = call()
    except BaseException as error:  # see _awaited
        return _ended_by(error)
    return Ended(leftover=value) if inspect.iscoroutine(value) else Ended()


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
    for _ in range(2):  # our own frames: _awaited or _called, then the lambda that holds the arguments
        trace = trace.tb_next if trace is not None else None
    try:
        return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
    except BaseException as worse:
        return f"<no traceback: formatting it raised {type(worse).__name__}>"
