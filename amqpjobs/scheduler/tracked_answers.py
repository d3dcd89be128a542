"""Answering commands that came by AMQP: what the fold said of them goes to the address that they named."""

from __future__ import annotations

import asyncio
import logging

from amqpjobs.model.tracked import Judged
from amqpjobs.model.tracked_verdicts import write_verdict
from amqpjobs.service import Service
from amqpjobs.streams.channel import PublishingChannel
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Batch, Outgoing, Properties

log = logging.getLogger("amqpjobs.scheduler")


class Answers(Service):
    """Publishes verdicts. One that is lost on its way is asked for again, by its uuid."""

    def __init__(self, link: Link, name: str) -> None:
        super().__init__(name)
        self._channel = PublishingChannel(link)
        self._due: list[tuple[str, Judged]] = []
        self._filled = asyncio.Event()

    def put(self, asked: list[tuple[str, Judged]]) -> None:
        """Answer these, each an address and a verdict."""
        if asked:
            self._due += asked
            self._filled.set()

    async def run(self) -> None:
        """Answer all that is due at once, again and again."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            due, self._due = self._due, []
            try:
                await self._publish(due)
            except BrokerError as error:
                log.debug("%d answers were not sent: %s", len(due), error)

    async def stop(self) -> None:
        """Answer no more; safe to repeat."""
        await super().stop()
        await self._channel.close()

    async def _publish(self, due: list[tuple[str, Judged]]) -> None:
        messages = [
            Outgoing(write_verdict(judged), "", to, Properties(correlation_id=judged.uuid)) for to, judged in due
        ]
        publisher = await self._channel.open()
        await publisher.publish_many(Batch(messages), mandatory=False)  # who has gone needs none
