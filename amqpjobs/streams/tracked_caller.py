"""Giving commands about tracked jobs without a view: the leader's answer comes by direct reply-to."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets

from amqpjobs.clock import Clock
from amqpjobs.model import command_names, names
from amqpjobs.model.tracked_commands import Act, Command
from amqpjobs.model.tracked_verdicts import Answer, read_verdict
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.streams.errors import BrokerError, NotFound, Refused, TooLarge
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import REPLY_TO, Connection, Incoming, Outgoing, Properties, Publisher

log = logging.getLogger("amqpjobs.streams")

ASK_AGAIN = 2.0
"""Seconds without an answer after which a command is given again: under its uuid it takes effect once."""
FIRST_PAUSE = 0.05


class TrackedCaller:
    """Asks on a channel of its own, opened by the first question. Safe for many tasks at once."""

    def __init__(self, link: Link, *, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._publisher: Publisher | None = None
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._run = secrets.token_urlsafe(6)
        self._numbers = itertools.count()

    async def ask(self, act: Act) -> Answer:
        """Give a command until its verdict is there, however long that takes: no scheduler may be there to answer.

        Raises what the broker refuses for good: TooLarge, Refused.
        """
        now = self._clock.wall()
        uuid = command_names.dated(now, self._run, next(self._numbers))
        body = write_command(Command(uuid, now, act))
        message = Outgoing(body, "", names.EVENTS, Properties(reply_to=REPLY_TO, correlation_id=uuid))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[uuid] = answer
        try:
            while not answer.done():
                await self._give(message)
                await asyncio.wait([answer], timeout=ASK_AGAIN)
            return answer.result()
        finally:
            del self._waiting[uuid]

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()

    async def _give(self, message: Outgoing) -> None:
        try:
            async with asyncio.timeout(ASK_AGAIN):
                await (await self._open()).publish(message)
        except TimeoutError:
            return
        except BrokerError as error:
            if isinstance(error, TooLarge | Refused) and not isinstance(error, NotFound):
                raise
            log.debug("asking %s again: %s", names.EVENTS, error)
            await self._clock.sleep(FIRST_PAUSE)

    async def _open(self) -> Publisher:
        async with self._opening:
            connection = await self._link.connection()
            if self._publisher is None or self._publisher.lost.done() or connection is not self._connection:
                self._publisher, self._connection = await connection.caller(self._take), connection
            await connection.unblocked()
            return self._publisher

    def _take(self, reply: Incoming) -> None:
        answer = read_verdict(reply.body)
        waiting = None if answer is None else self._waiting.get(answer.uuid)
        if answer is not None and waiting is not None and not waiting.done():
            waiting.set_result(answer)
