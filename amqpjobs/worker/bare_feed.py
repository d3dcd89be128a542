"""A second way into a job queue: the queue of its bare name, for clients that know no other (`setup --compat`)."""

from __future__ import annotations

import logging
from typing import Any

from amqpjobs.model import names
from amqpjobs.streams import topology
from amqpjobs.streams.errors import AccessRefused
from amqpjobs.streams.port import Connection
from amqpjobs.worker.feed import Feed

log = logging.getLogger("amqpjobs.worker")

LOOK_EVERY = 60.0
"""Seconds between two looks for the mark that `setup` leaves."""


class BareFeed(Feed):
    """Feeds a job queue from the queue of its bare name, once the mark is there that says so.

    Without the mark a queue of that name is somebody else's business. It is looked for at the start, with each new
    connection, and once a minute.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.name = f"bare feed {self.queue}"
        self.source = self.queue
        self.tried.set()  # it is no fault that there is none

    async def _prepare(self, connection: Connection) -> None:
        while not await self._marked(connection):
            await self._clock.sleep(LOOK_EVERY)
        if await connection.passive(self.source) is None:
            await topology.ensure_bare_queue(connection, self._link.settings, self.queue)
        log.info("queue %s: jobs are taken from the queue of its bare name too", self.queue)

    async def _marked(self, connection: Connection) -> bool:
        try:
            return await connection.passive(names.bare_mark(self.queue)) is not None
        except AccessRefused:  # a user who may not even ask has nothing to do with it
            return False

    def _say(self, line: str) -> None:
        """The queue's first feed says it."""
