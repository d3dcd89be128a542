"""The enqueue log: which jobs our clients put on queues, for `amqpjobs conservation`. Off unless a setting says so."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names, text
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing

log = logging.getLogger("amqpjobs")


class EnqueueLog:
    """Appends an entry for each job that a broker has confirmed."""

    def __init__(self, link: Link, *, clock: Clock) -> None:
        self._timeout = link.settings.publish_timeout
        self._appender = Appender(link, names.ENQUEUED, clock=clock)
        self._clock = clock

    async def add(self, messages: Sequence[Outgoing]) -> None:
        """Put these jobs on record. Never raises: they are on their queues, and whoever heard otherwise would repeat
        them."""
        if not messages:
            return
        try:
            await self._appender.append([self._entry(each) for each in messages], timeout=self._timeout)
        except BrokerError as error:
            log.warning("%d jobs were enqueued, and not put on record: %s", len(messages), error)

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        await self._appender.close()

    def _entry(self, message: Outgoing) -> bytes:
        entry = {
            "type": "enqueued",
            "jid": message.properties.message_id,
            "queue": message.routing_key,
            "at": self._clock.wall(),
            "job": text.Verbatim(message.body),
        }
        return text.dump(entry)
