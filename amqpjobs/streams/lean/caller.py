"""A channel in confirm mode on which the replies to its messages come, by the broker's direct reply-to."""

from __future__ import annotations

import logging

from pamqp import commands

from amqpjobs.streams.lean.publisher import LeanPublisher, Terms
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import DELIVER, Deliver, Header, read_deliver
from amqpjobs.streams.port import REPLY_TO, Handler, Incoming

log = logging.getLogger("amqpjobs.streams")


class LeanCaller(LeanPublisher):
    """See `port.Connection.caller`."""

    def __init__(self, socket: Socket, number: int, terms: Terms, handler: Handler) -> None:
        super().__init__(socket, number, terms)
        self._handler = handler
        self._reply_at: Deliver | None = None

    async def open(self) -> None:
        """Open it, and subscribe to the replies: without acknowledgements, as the broker wants it."""
        await super().open()
        consume = commands.Basic.Consume(0, REPLY_TO, f"amqpjobs-{self._number}", False, True, False, False, {})
        await self.call(consume, commands.Basic.ConsumeOk)

    def fast(self, code: int, buffer: bytes, at: int, end: int) -> bool:
        """Replies, beside what a publisher is told."""
        if code != DELIVER:
            return super().fast(code, buffer, at, end)
        self._reply_at = read_deliver(buffer, at, end)
        return True

    def content(self, header: Header, body: bytes) -> None:
        """A reply, or the content of a return."""
        at, self._reply_at = self._reply_at, None
        if at is None:
            super().content(header, body)
            return
        try:
            self._handler(Incoming(body, at.tag, at.exchange, at.routing_key, at.redelivered, header.properties))
        except Exception:
            log.exception("a handler of replies raised; the reply is lost")
