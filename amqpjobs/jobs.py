"""`@job`: a function that can be enqueued, and the registry where workers find it by name.

Light on purpose: importing a module of jobs starts no connection and loads no broker driver.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from amqpjobs.payload import EnqueueOptions, JobOptions, check_options

if TYPE_CHECKING:
    from amqpjobs.model.recurring import Missed, Schedule

P = ParamSpec("P")
R = TypeVar("R")


class JobFunction(Generic[P, R]):
    """A registered function. Calling it runs it here and now; `enqueue` hands it to a worker."""

    def __init__(self, function: Callable[P, R], name: str, options: JobOptions) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.defaults = options
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        self._shape = _Shape(self._signature)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function itself, without any broker."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue with the function's own options and return the jid, once the broker has it."""
        return self.options().enqueue(*args, **kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue`, without blocking the event loop."""
        return await self.options().enqueue_async(*args, **kwargs)

    def options(
        self,
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueuing[P]:
        """The same function with other options: `send.options(queue="low", delay=60).enqueue(1)`.

        `delay` is in seconds (or a timedelta) from the call of `enqueue`, `at` a moment; at most one of them.
        """
        if delay is not None and at is not None:
            raise TypeError("give delay or at, not both")
        check_options(options)
        return Enqueuing(cast("JobFunction[P, Any]", self), options, delay, at)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | dict[str, Any]:
        """The arguments as the wire carries them: a list, or an object. Raises TypeError where a call would."""
        if not (args and kwargs) and self._shape.fits(args, kwargs):
            return dict(kwargs) if kwargs else list(args)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}; nothing was sent") from None
        if not kwargs:
            return list(args)
        if not args:
            return dict(kwargs)
        return self._named(bound)

    def _named(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """A job's arguments are a list or an object, so a mixed call becomes all names."""
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                named |= value
            elif kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"{self.name}: {name!r} cannot be given by name, so keyword arguments cannot be mixed in"
                )
            else:
                named[name] = value
        return named


class _Shape:
    """Tells at a glance that a call fits a signature: `Signature.bind`, which has the words, costs much more."""

    def __init__(self, signature: inspect.Signature) -> None:
        kinds = inspect.Parameter
        given = signature.parameters.values()
        placed = [each for each in given if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        named = [each for each in given if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
        single = [each for each in given if each.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
        self._named = frozenset(each.name for each in named)
        self._required = frozenset(each.name for each in single if each.default is kinds.empty)
        self._least = sum(each.default is kinds.empty for each in placed)
        self._most = -1 if len(self._required) > self._least else len(placed)

    def fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether it surely fits, of a call with one or the other."""
        if kwargs:
            return self._required <= kwargs.keys() <= self._named
        return self._least <= len(args) <= self._most


class Enqueuing(Generic[P]):
    """A job function with the options of one or more calls."""

    def __init__(
        self,
        job: JobFunction[P, Any],
        options: EnqueueOptions,
        delay: float | timedelta | None,
        at: datetime | float | None,
    ) -> None:
        self._job = job
        self._options = options
        self._delay = delay
        self._at = at

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue and return the jid, once the broker has it. Blocks for at most `AMQPJOBS_PUBLISH_TIMEOUT`."""
        from amqpjobs.sync import default_client  # noqa: PLC0415 - the driver is loaded by the first use

        return default_client().submit(self._job, args, kwargs, self._options, delay=self._delay, at=self._at).result()

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue`, without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - see enqueue

        from amqpjobs.sync import default_client  # noqa: PLC0415 - see enqueue

        future = default_client().submit(self._job, args, kwargs, self._options, delay=self._delay, at=self._at)
        return await asyncio.wrap_future(future)


class Registry:
    """Job functions by name. There is one for the process, `amqpjobs.jobs.registry`; tests may make their own."""

    def __init__(self) -> None:
        self._functions: dict[str, JobFunction[..., Any]] = {}
        self.leased: set[str] = set()
        """The names of those with `lease=True`."""
        self._schedules: dict[str, tuple[Schedule, JobFunction[..., Any]]] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def get(self, name: str) -> JobFunction[..., Any] | None:
        """The function registered as `name`, or None."""
        return self._functions.get(name)

    @property
    def schedules(self) -> list[Schedule]:
        """The recurring jobs that were registered."""
        return [schedule for schedule, _ in self._schedules.values()]

    @property
    def origins(self) -> set[str]:
        """The origins of schedules that this code keeps: one for each module with a job."""
        return {_origin(job) for job in self._functions.values()}

    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def job(
        self, /, *, name: str | None = None, lease: bool = False, **options: Unpack[JobOptions]
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...
    def job(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        lease: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobFunction[P, R] | Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Register a function, sync or async, under its own name or `name`: `@job` or `@job(name=…, queue=…, retry=…)`.

        `lease=True`: its jobs are tracked, and may run for longer than the broker waits for acknowledgements
        (docs/tracked.md). Raises ValueError when another function has the name, TypeError and ValueError for wrong
        options.
        """
        if function is not None:
            return self._register(function, name, options, lease=lease)
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"@job: name is a non-empty string, not {name!r}")
        check_options(options)
        return lambda function: self._register(function, name, options, lease=lease)

    def recurring(
        self,
        cron: str | None = None,
        *,
        every: int | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        args: Sequence[Any] | Mapping[str, Any] = (),
        missed: Missed = "once",
        paused: bool = False,
        **options: Unpack[JobOptions],
    ) -> Callable[[JobFunction[P, R]], JobFunction[P, R]]:
        """Let a job recur, by a cron expression or every so many seconds; a worker declares it at its start.

        Written above `@job`: `@recurring("0 3 * * *", timezone="Europe/Rome")`. Its `name` is the job's own unless
        given; `args` is a list, or a mapping of arguments by name; docs/recurring.md explains the rest. Raises
        ValueError or TypeError for what is wrong.
        """
        from amqpjobs import schedules  # noqa: PLC0415 - what most modules of jobs do not need

        times = {"cron": cron, "timezone": timezone, "every": every, "missed": missed, "paused": paused}

        def register(job: JobFunction[P, R]) -> JobFunction[P, R]:
            if not isinstance(job, JobFunction):
                raise TypeError(f"@recurring goes above @job; {job!r} is no job yet")
            if isinstance(args, str | bytes):
                raise TypeError(f"@recurring of {job.name}: args is a list, or a mapping by name, not {args!r}")
            given = ((), args) if isinstance(args, Mapping) else (tuple(args), {})
            chosen = job.name if name is None else name
            more = {**job.defaults, **options}
            try:
                found = schedules.schedule(
                    chosen, job.name, job.arguments(*given), more, origin=_origin(job), **times
                )  # fmt: skip
            except ValueError as error:
                raise ValueError(f"@recurring of {job.name}: {error}") from None
            self._schedule(found, job)
            return job

        return register

    def _schedule(self, found: Schedule, job: JobFunction[..., Any]) -> None:
        known, by = self._schedules.get(found.name, (found, None))
        if by is not None and (by.name != job.name or (by is job and known != found)):
            raise ValueError(f"two recurring jobs are called {found.name!r}; give one of them another name=")
        self._schedules[found.name] = found, job

    def _register(
        self, function: Callable[P, R], name: str | None, options: JobOptions, *, lease: bool
    ) -> JobFunction[P, R]:
        if not callable(function):
            raise TypeError(f"@job registers a function, not {function!r}; name it with @job(name=…)")
        if isinstance(function, JobFunction):
            function = function.function
        name = name or function.__name__
        registered = JobFunction(function, name, options)
        known = self._functions.get(name)
        if known is not None and _place(known.function) != _place(function):
            raise ValueError(
                f"two functions are registered as job {name!r}: {_shown(known.function)} and {_shown(function)};"
                " give one of them another name with @job(name=…)"
            )
        self._functions[name] = registered
        (self.leased.add if lease else self.leased.discard)(name)
        return registered


def _origin(job: JobFunction[..., Any]) -> str:
    """Who keeps the schedules of a job's module: what it no longer has is removed."""
    return f"code:{job.function.__module__}"


def _place(function: Callable[..., Any]) -> tuple[str, str, int]:
    """Where a function is written: a module that is reloaded registers the same ones again."""
    code = inspect.unwrap(function).__code__ if hasattr(inspect.unwrap(function), "__code__") else None
    return function.__qualname__, code.co_filename if code else "", code.co_firstlineno if code else id(function)


def _shown(function: Callable[..., Any]) -> str:
    _, file, line = _place(function)
    return f"{function.__module__}.{function.__qualname__} ({file}:{line})"


registry = Registry()
job = registry.job
recurring = registry.recurring

Handler = Callable[..., Any] | Callable[..., Awaitable[Any]]
