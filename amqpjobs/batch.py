"""Many jobs in one call: read from an iterable in windows, the next one while those before it are confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from amqpjobs.jobs import JobFunction
from amqpjobs.payload import EnqueueOptions
from amqpjobs.streams.errors import BrokerError, BrokerUnavailable
from amqpjobs.streams.port import Outgoing

WINDOW = 1000
"""Jobs that are read and published together."""
WINDOW_BYTES = 4 * 1024 * 1024
"""A window closes at this size: what is unconfirmed waits in memory, here and in the broker."""
UNDER_WAY = 3
"""Windows that are published and not yet confirmed; the broker is never without work while another one is read."""
LAST = 10
"""Jobs at the end of a long call that are published apart, once the broker has all the others.

A classic queue of RabbitMQ 4 keeps what it wrote last in its memory: up to a thousand jobs, each of which holds on to
the 128 KB in which a bulk of them came. Erlang then goes through the queue's whole heap at every second collection, and
workers get a fifth less out of it (docs/brokers.md), until somebody enqueues again. After these ten it is these ten
that are kept.
"""
LONG = 300
"""Jobs of a call that is a long one: for fewer, waiting for the broker once more costs more than it gains."""

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


_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class PartlyEnqueued(BrokerError):
    """Not all of the jobs of an `enqueue_many` were confirmed, and no further ones were begun. `__cause__` says why.

    `confirmed`: the jids of those that the broker has, in order. `unconfirmed`: of the others that were read, why not;
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
    arguments = given[1] if len(given) > 1 else ()
    options = given[2] if len(given) > 2 else _NO_OPTIONS
    if not isinstance(options, (dict, Mapping)):  # a dict is told at once, another Mapping only by its registry
        raise TypeError(f"the options of a job are a mapping, not {options!r:.80}")
    if isinstance(arguments, (list, tuple)):
        return Parts(given[0], tuple(arguments), {}, cast(EnqueueOptions, options))
    if isinstance(arguments, (dict, Mapping)):
        return Parts(given[0], (), arguments, cast(EnqueueOptions, options))
    if isinstance(arguments, (str, bytes)) or not isinstance(arguments, Sequence):
        raise TypeError(f"the arguments of a job are a list or a mapping, not {arguments!r:.80}")
    return Parts(given[0], tuple(arguments), {}, cast(EnqueueOptions, options))


class Bulk:
    """One `enqueue_many` under way: its calls are made into messages in windows, of which several are sent at once.

    `message` makes one of a call. What it raises, or the iterable, ends the reading.
    """

    def __init__(self, calls: Iterable[Call], message: Callable[[Call], Outgoing]) -> None:
        self._messages = map(message, calls)
        self._count = 0
        self._ahead: list[Outgoing] = []
        self._last: list[Outgoing] = []
        self._confirmed: list[str] = []
        self._unconfirmed: dict[str, BaseException] = {}
        self._error: BaseException | None = None

    def read(self) -> list[Outgoing]:
        """The next window; empty at the end, and once anything failed."""
        if self._error is not None:
            return []
        window, self._ahead = self._ahead, []
        size = sum(len(message.body) for message in window)
        try:
            for message in self._messages:
                window.append(message)
                size += len(message.body)
                if len(window) >= WINDOW + LAST or size >= WINDOW_BYTES:
                    return self._cut(window)
        except Exception as error:
            self._error = error
            whole = WINDOW if len(window) >= WINDOW else 0
            self._ahead = window[whole:]
            return window[:whole]
        return self._ended(window)

    def last(self) -> list[Outgoing]:
        """What is to be published when all windows are settled; empty where nothing is, and once anything failed."""
        if self._error is not None:
            return []
        last, self._last = self._last, []
        return last

    def _cut(self, window: list[Outgoing]) -> list[Outgoing]:
        self._ahead = window[WINDOW:]
        self._count += len(window) - len(self._ahead)
        return window[:WINDOW]

    def _ended(self, window: list[Outgoing]) -> list[Outgoing]:
        if self._last or self._count + len(window) <= LONG:
            return window
        self._last = window[-LAST:]
        return window[:-LAST]

    def settled(self, window: Sequence[Outgoing], failed: Mapping[int, BrokerError]) -> None:
        """What became of a window; they are told in their order. `failed`: why not, by index."""
        jids = [str(message.properties.message_id) for message in window]
        self._confirmed += jids if not failed else [jid for at, jid in enumerate(jids) if at not in failed]
        for at, error in failed.items():
            self._unconfirmed[jids[at]] = error
            self._error = self._error or error

    def result(self) -> list[str]:
        """The jids of all. Raises what ended the reading when nothing was sent before it, else PartlyEnqueued."""
        error = self._error
        if error is None:
            return self._confirmed
        if not self._confirmed and not self._unconfirmed:
            raise error
        for message in self._ahead + self._last:
            unsent = BrokerUnavailable("not sent: the call had failed before")
            self._unconfirmed[str(message.properties.message_id)] = unsent
        raise PartlyEnqueued(self._confirmed, self._unconfirmed, error) from error
