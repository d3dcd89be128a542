"""Who may try to lead: the holder of the exclusive consumer on `jobs.leader`.

This is a hint, not the fence: a cancelled consumer's connection lives on and may still publish, so what keeps two
leaders apart is the term in each stream (`reign`). The hint only keeps candidates from bidding against each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service, first_to_end
from amqpjobs.streams import topology
from amqpjobs.streams.errors import AccessRefused, BrokerError, PreconditionFailed
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Consumer, Incoming

log = logging.getLogger("amqpjobs.scheduler")

RETRY = 1.0
"""Seconds between two tries of a candidate that was refused."""


class Election(Service):
    """Tries for the exclusive consumer until it has it, and again when it is lost.

    `held` is set exactly while it is ours. A holder stops at once when the broker cancels the consumer, or when its
    channel or connection closes; a half-open connection is noticed after three AMQP heartbeats.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        super().__init__("election")
        self._link = link
        self._clock = clock
        self._told: str | None = None
        self.held = asyncio.Event()
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Candidate, holder, candidate…"""
        while True:
            try:
                await self._hold()
            except BrokerError as error:
                self._tell(f"not leading: {error}")
            await self._clock.sleep(RETRY)

    async def lost(self) -> None:
        """Return once it is not held."""
        while self.held.is_set():
            self.changed.clear()
            await self.changed.wait()

    async def serve(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin the work whenever it is held and cancel it when it is lost, for ever. Raises what the work raises."""
        while True:
            await self.held.wait()
            await first_to_end(work(), self.lost())

    async def _hold(self) -> None:
        connection = await self._link.connection()
        try:
            consumer = await self._take(connection)
        except AccessRefused:
            self._tell("standing by: another scheduler leads")
            return
        self._set(held=True)
        self._tell("elected")
        try:
            await asyncio.wait([consumer.lost])
        finally:
            self._set(held=False)
            await consumer.close()
        self._tell("no longer elected: the consumer on jobs.leader is gone")

    async def _take(self, connection: Connection) -> Consumer:
        """Refuses a queue of another type: on a quorum queue the broker lets two exclusive consumers in."""
        try:
            await connection.declare_queue(names.LEADER_QUEUE, topology.classic(connection))
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"{names.LEADER_QUEUE} has other arguments ({error}); delete that queue, it holds nothing"
            ) from error
        return await connection.consume(names.LEADER_QUEUE, _ignore, prefetch=1, exclusive=True)

    def _set(self, *, held: bool) -> None:
        if held:
            self.held.set()
        else:
            self.held.clear()
        self.changed.set()

    def _tell(self, what: str) -> None:
        """Say it once, not once a second."""
        if what != self._told:
            self._told = what
            log.info("%s", what)


def _ignore(message: Incoming) -> None:
    """Nothing is ever published to `jobs.leader`; what a stranger puts there stays unacked."""
