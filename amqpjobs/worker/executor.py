"""Runs one job's function, on the loop or in a thread, and says how it ended. Nothing that a function does escapes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.errors import Fail, Retry, Snooze, UnknownJobClass
from amqpjobs.jobs import Registry
from amqpjobs.model.messages import Job
from amqpjobs.worker import eager
from amqpjobs.worker.context import enter
from amqpjobs.worker.run import Ended, Run, failure_of
from amqpjobs.worker.threads import ThreadPool

_WELL = Ended()


QUICK = 0.005
"""Seconds that calls in threads take at most on average where the next are handed over before a thread is free."""
TOGETHER = 10
"""Runs that are told of at once, and begun at once.

A hundred that ended in one millisecond would otherwise all be recorded before the first of the next hundred begins:
these then wait, and end, together, and each round takes its work on top of the jobs' own time.
"""
MANY_TOGETHER = 50
"""The same of jobs so quick that all of these take less than TURN: for no-op jobs turns of the loop cost a tenth."""
TURN = 0.002
"""Seconds that the jobs of one turn of the loop take on average: what else the loop has to do waits for them."""
SHORT = 0.0005
"""Seconds that runs on the loop take at least on average where each is followed at once, before it is recorded.

For shorter ones that would cost more than it gains: a tenth of a worker's CPU where jobs do nothing.
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
        self.on_over: Callable[[Run], None] = lambda run: None
        """Called when a run has just ended on the loop, before `on_ended` tells of it; not of short ones."""
        self._registry = registry
        self._threads = ThreadPool(concurrency, self._settle)
        self._clock = clock
        self._base = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._ended: list[tuple[Run, Ended]] = []
        self._settling = False
        self._waiting: set[Run] = set()
        self._tasks = 0
        self._concurrency = concurrency
        self._mean = self._mean_on_loop = _FIRST_GUESS

    @property
    def ahead(self) -> int:
        """How many more runs than there are slots may be started now, of those that `may_wait`."""
        return self._concurrency if self._mean < QUICK and not self._tasks else 0

    @property
    def together(self) -> int:
        """How many runs are to be begun before the loop has its turn."""
        return MANY_TOGETHER if self._mean_on_loop * MANY_TOGETHER < TURN else TOGETHER

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
        if function.is_async:
            self._on_loop(run, self._await(run, function.function), context, at_once=self._mean_on_loop > SHORT)
        else:
            self._in_thread(run, function.function, context)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()

    def _on_loop(
        self, run: Run, awaited: Coroutine[Any, Any, None], context: contextvars.Context, *, at_once: bool
    ) -> None:
        """Await it in a task of its own, cancelled at the time limit; a task that ignores that goes on."""
        loop = self._loop
        self._tasks += 1
        if run.job.timeout is not None:
            run.limit(loop)
        if at_once:
            eager.begin(loop, awaited, context, run.awaited_by)
        else:
            run.awaited_by(loop.create_task(awaited, context=context))

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
                self._on_loop(run, self._await_too(run, ended.leftover), context, at_once=True)

        if run.job.timeout is not None:
            run.limit(asyncio.get_running_loop())
        self._waiting.add(run)
        self._threads.submit(called, context, returned)

    async def _await(self, run: Run, function: Callable[..., Any]) -> None:
        # BaseException: a SystemExit of a handler must fail one try, not end the worker.
        enter(run.context)
        run.began = self._clock.steady()
        args = run.job.args
        ended = _WELL
        try:
            if run.context.cancelled:  # before it could begin
                raise asyncio.CancelledError
            await (function(*args) if isinstance(args, list) else function(**args))
        except BaseException as error:
            ended = _ended_by(error)
        run.passed = self._clock.steady() - run.began
        self._mean_on_loop += (run.passed - self._mean_on_loop) * _WEIGHT
        self._tell(run, ended)
        if self._mean_on_loop > SHORT:
            self._base.copy().run(self.on_over, run)  # what is begun there is not of this job's context

    async def _await_too(self, run: Run, leftover: Awaitable[Any]) -> None:
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
        together = self.together
        ended, self._ended = self._ended[:together], self._ended[together:]
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
    enter(run.context)
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
