"""What a client does to jobs that wait: the actions of `amqpjobs.actions`, each with the fold's verdict."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amqpjobs.clock import Clock
from amqpjobs.model.words import SETS, WORDS, Verdict
from amqpjobs.settings import Settings

if TYPE_CHECKING:
    from amqpjobs.sets import Desk

Verdicts = dict[str, Verdict | None]
"""By jid; None: not known in time. What was asked for takes effect all the same, or is found in the audit."""


class Waiting:
    """Acts on jobs that wait. Its views are opened at the first action and kept up to date until `close`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._resources = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._desk: Desk | None = None

    async def act(
        self, word: str, jids: Sequence[str], where: str | None, *, due: float | None, by: str, patience: float
    ) -> Verdicts:
        """Act on jobs, and wait for the verdicts at most `patience` seconds after the last news.

        `where` is a name of SETS, needed when a jid waits in more than one set. Raises ValueError (nothing was done),
        BrokerError, NoStateFolder.
        """
        from amqpjobs.action import MOST_TOLD, Order  # noqa: PLC0415 - what only enqueues needs no views

        streams = _streams(word, where)
        desk = await self._open()
        orders = {stream: Order(word, stream, by, "client", due) for stream in streams}
        placed = await desk.placed(word, list(dict.fromkeys(jids)), streams, choose="where=")
        verdicts: Verdicts = dict.fromkeys(jids)
        for stream, jobs in placed.items():
            for first in range(0, len(jobs), MOST_TOLD):
                action = desk.actions.begin(orders[stream], jobs[first : first + MOST_TOLD])
                await action.ended(patience)
                if action.error is not None:
                    raise action.error
                verdicts |= {result.jid: result.verdict for result in action.told}
        return verdicts

    async def close(self) -> None:
        """Let go of the views; safe to repeat."""
        async with self._opening:
            self._desk = None
            await self._resources.aclose()

    async def _open(self) -> Desk:
        from amqpjobs.sets import desk  # noqa: PLC0415 - what only enqueues needs no views

        async with self._opening:
            if self._desk is None:
                self._desk = await self._resources.enter_async_context(desk(self._settings, clock=self._clock))
            return self._desk


def _streams(word: str, where: str | None) -> Sequence[str]:
    if word not in WORDS:
        raise ValueError(f"{word!r} is no action; these are: {', '.join(WORDS)}")
    streams = WORDS[word].streams
    if where is None:
        return streams
    if SETS.get(where) not in streams:
        names = [name for name, stream in SETS.items() if stream in streams]
        raise ValueError(f"where: {word} has no meaning in {where!r}, only in {', '.join(names)}; nothing was done")
    return [SETS[where]]
