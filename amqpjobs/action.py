"""One action of an operator: what is asked for, and how far it has come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from amqpjobs.model.protocol import Op, Verdict
from amqpjobs.model.words import WORDS
from amqpjobs.streams.audit_store import AuditStore
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.views import DelayedView

MOST_TOLD = 1000
"""Jobs of an action whose verdicts are told one by one; of more, how many."""


class Set(NamedTuple):
    """A delayed set as this process sees it."""

    view: DelayedView
    follower: Follower


class Record(NamedTuple):
    """The audit as this process sees it."""

    store: AuditStore
    follower: Follower


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for. `by` names who, `via` is "cli", "api", "web" or "client"; `due` in seconds since 1970.

    Raises ValueError for a word that is none, or has no meaning for that stream.
    """

    word: str
    stream: str
    by: str
    via: str
    due: float | None = None

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"{self.word!r} is no action; these are: {', '.join(WORDS)}")
        streams = WORDS[self.word].streams
        if self.stream not in streams:
            raise ValueError(f"{self.word} has no meaning in {self.stream!r}, only in {', '.join(streams)}")
        if self.word == "reschedule" and self.due is None:
            raise ValueError("to reschedule a job takes the time that it is to run at")

    @property
    def op(self) -> Op:
        """The operation of the fold."""
        return WORDS[self.word].op


class Result(NamedTuple):
    """The outcome for one job; `verdict` None: not known (yet). `why` says more where there is more to say."""

    jid: str
    entry: str | None
    verdict: Verdict | None
    why: str = ""


@dataclass(slots=True)
class Action:
    """One action under way, or over (`finished`). `told` are the outcomes of the first jobs, `counts` of all."""

    id: str
    order: Order
    counts: Counter[Verdict] = field(default_factory=Counter)
    told: list[Result] = field(default_factory=list)
    asked: int = 0
    error: BrokerError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.task is not None and self.task.done()

    @property
    def unknown(self) -> int:
        """Jobs that were asked for and of which the outcome is not known."""
        return self.asked - self.counts.total()

    async def wait(self, timeout: float) -> bool:
        """Wait until it is finished, at most `timeout` seconds; whether it is. It goes on in any case."""
        assert self.task is not None, "an action is begun when it is made"
        await asyncio.wait({self.task}, timeout=timeout)
        if self.finished and not self.task.cancelled():
            self.task.result()
        return self.finished

    async def ended(self, patience: float) -> bool:
        """Wait until it is finished, or nothing more came of it for `patience` seconds; whether it is."""
        before = -1
        while (known := self.asked + self.counts.total()) != before:
            before = known
            if await self.wait(patience):
                return True
        return False

    def note(self, results: Sequence[Result]) -> None:
        """Take in outcomes."""
        self.counts.update(result.verdict for result in results if result.verdict is not None)
        self.told += results[: max(0, MOST_TOLD - len(self.told))]
