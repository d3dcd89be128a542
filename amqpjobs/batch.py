"""Many jobs in one call: read from an iterable in windows, each confirmed before the next is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from amqpjobs.jobs import JobFunction
from amqpjobs.payload import EnqueueOptions
from amqpjobs.streams.errors import BrokerError

WINDOW = 1000
"""Jobs that are read and under way at once."""

Arguments = Sequence[Any] | Mapping[str, Any]
Call = (
    str
    | JobFunction[..., Any]
    | tuple[str | JobFunction[..., Any]]
    | tuple[str | JobFunction[..., Any], Arguments]
    | tuple[str | JobFunction[..., Any], Arguments, EnqueueOptions]
)
"""One job of many: `"Rebuild"`, `("SendEmail", ["a@example.com"])` or `("SendEmail", {"to": "a"}, {"queue": "low"})`.

A list or tuple holds positional arguments, a mapping keyword arguments.
"""


class PartlyEnqueued(BrokerError):
    """Not all of the jobs of an `enqueue_many` were confirmed; no further ones were sent. `__cause__` says why.

    `confirmed`: the jids of those that the broker has, in order. `unconfirmed`: of the others that were begun, why not;
    one that is there with a ConfirmTimeout may have arrived.
    """

    def __init__(
        self, confirmed: Sequence[str], unconfirmed: Mapping[str, BaseException], cause: BaseException
    ) -> None:
        super().__init__(f"{len(confirmed)} jobs were enqueued, then {type(cause).__name__}: {cause}")
        self.confirmed = list(confirmed)
        self.unconfirmed = dict(unconfirmed)


class Parts(NamedTuple):
    """A call taken apart."""

    job: str | JobFunction[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: EnqueueOptions


def parts(call: Call) -> Parts:
    """The job, its arguments and options. Raises TypeError for what is no call."""
    if isinstance(call, (str, JobFunction)):
        return Parts(call, (), {}, {})
    if not isinstance(call, (tuple, list)) or not 1 <= len(call) <= 3:
        raise TypeError(f"one job is a name, or a tuple of name, arguments and options, not {call!r:.80}")
    given: Sequence[Any] = call
    job = given[0]
    arguments = given[1] if len(given) > 1 else ()
    options = given[2] if len(given) > 2 else {}
    if not isinstance(options, Mapping):
        raise TypeError(f"the options of a job are a mapping, not {options!r:.80}")
    if isinstance(arguments, Mapping):
        return Parts(job, (), arguments, cast(EnqueueOptions, options))
    if isinstance(arguments, (str, bytes)) or not isinstance(arguments, Sequence):
        raise TypeError(f"the arguments of a job are a list or a mapping, not {arguments!r:.80}")
    return Parts(job, tuple(arguments), {}, cast(EnqueueOptions, options))


def windows(calls: Iterable[Call], confirmed: Sequence[str]) -> Iterator[list[Call]]:
    """The calls in windows. What the iterable raises after some jobs were sent becomes PartlyEnqueued."""
    iterator = iter(calls)
    while True:
        try:
            window = list(islice(iterator, WINDOW))
        except Exception as error:
            if confirmed:
                raise PartlyEnqueued(confirmed, {}, error) from error
            raise
        if not window:
            return
        yield window
