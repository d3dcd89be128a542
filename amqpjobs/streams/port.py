"""The port: what the rest of the product asks of an AMQP connection, whatever drives it.

`amqpjobs.streams.aio` (aio-pika) is one driver behind it; another must pass the same conformance suite
(tests/conformance). A connection lives once: when it is lost, everything opened on it is lost too, every
call on it raises `ConnectionLost`, and its owner opens another (`amqpjobs.streams.link`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from amqpjobs.streams.errors import BrokerError

Scalar = str | int | float | bool | None


NO_HEADERS: Mapping[str, Scalar] = MappingProxyType({})


class Properties(NamedTuple):
    """The AMQP properties that we read and write. Headers are scalars only: a stream on 3.10 loses the rest."""

    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    content_type: str | None = "application/json"
    content_encoding: str | None = None
    priority: int | None = None
    type: str | None = None
    headers: Mapping[str, Scalar] = NO_HEADERS


class Incoming(NamedTuple):
    """One message as it came. `offset` is set when it came from a stream. `tag` is good on its consumer only."""

    body: bytes
    tag: int
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Properties
    offset: int | None = None


class Outgoing(NamedTuple):
    """One message to publish; always persistent."""

    body: bytes
    exchange: str
    routing_key: str
    properties: Properties = Properties()


@dataclass(frozen=True, slots=True)
class FromTime:
    """Read a stream from the first chunk that arrived at or after `at` (seconds since 1970; earlier ones may come)."""

    at: float


OFFSET_HEADER = "x-stream-offset"
"""The argument that says where a reader starts, and the header that says where a message stands."""

Start = int | str | FromTime
"""Where a stream reader starts: an offset (inclusive), "first", "last" (chunk), "next", or a time."""

Handler = Callable[[Incoming], None]
"""Called on the event loop, in order, for each message. It must be quick and must not raise."""


REPLY_TO = "amq.rabbitmq.reply-to"
"""The broker puts the caller's own address in its place (direct reply-to)."""


class Batch:
    """Messages to be published together, in this order, and what became of them.

    `pending`: the indexes of those of which nothing is known yet. `failed`: why the others did not arrive, by index;
    those in neither are confirmed. `sent`: so many, from the first, were given to the socket; the rest certainly did
    not arrive.
    """

    __slots__ = ("_settled", "failed", "messages", "pending", "sent")

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self.pending = set(range(len(messages)))
        self.failed: dict[int, BrokerError] = {}
        self.sent = 0
        self._settled: asyncio.Future[None] | None = None

    def settle(self, index: int, error: BrokerError | None) -> None:
        """For drivers: a message arrived, or why it did not."""
        if index not in self.pending:
            return
        self.pending.remove(index)
        if error is not None:
            self.failed[index] = error
        if not self.pending and self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def settled(self) -> None:
        """For drivers: wait until nothing is pending."""
        if self.pending:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled


class Publisher(Protocol):
    """A channel in confirm mode. Safe for many tasks at once."""

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done, with the reason as its exception, when the channel is gone."""
        ...

    async def publish(self, message: Outgoing, *, mandatory: bool = True) -> None:
        """Publish and wait for the confirm.

        Raises Unroutable (returned), Nacked, TooLarge (nothing sent), Refused (channel closed by the broker with
        403, 404 or 406), ConnectionLost (unknown whether it arrived). Cancelling the call leaves that unknown too.
        """
        ...

    async def publish_many(self, batch: Batch, *, mandatory: bool = True) -> None:
        """Publish all messages of a batch, in order and in few writes, and wait for all the confirms.

        `batch.failed` then holds what `publish` would have raised for each; this raises nothing of that. When the call
        is cancelled, `batch` tells of which messages nothing is known.
        """
        ...

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        ...


class Consumer(Protocol):
    """A subscription on a channel of its own."""

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done, with the reason as its exception, when no further message will come; after `cancel` without one."""
        ...

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge; queued, never waits. On a lost channel it does nothing: the broker gives the message again."""
        ...

    def nack(self, tag: int, *, requeue: bool = True) -> None:
        """Give a message back, or drop it to the dead-letter exchange. Never on a stream: 3.10 drops the connection."""
        ...

    async def resize(self, prefetch: int) -> None:
        """From now on at most so many further messages are out unacknowledged: what is out already does not count.

        Nothing happens after `cancel`. Not for an exclusive consumer.
        """
        ...

    async def cancel(self) -> None:
        """Stop deliveries, keeping the channel for acks of what is out; safe to repeat."""
        ...

    async def close(self) -> None:
        """Close the channel: what is unacked goes back to its queue; safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a passive declare tells: `ready` excludes what is unacked; on a stream it lags and over-counts."""

    ready: int
    consumers: int
    rate_in: float | None = field(default=None, compare=False)
    """Messages a second that come and go (are acked), as the management API has sampled them; None: not known."""
    rate_out: float | None = field(default=None, compare=False)
    arguments: Mapping[str, Scalar] | None = field(default=None, compare=False)
    """What it is declared with, as the management API tells; None: not known."""


class Connection(Protocol):
    """One AMQP connection."""

    @property
    def address(self) -> str:
        """Where it leads, without credentials: one of the addresses of the settings."""
        ...

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done, with the reason as its exception, when the connection is gone."""
        ...

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now (memory or disk alarm), or None."""
        ...

    async def unblocked(self) -> None:
        """Wait until the broker takes publishes (again); returns at once when it does. Raises ConnectionLost."""
        ...

    @property
    def server(self) -> Mapping[str, str]:
        """What the broker says of itself: product, version, cluster_name where it tells."""
        ...

    async def publisher(self) -> Publisher:
        """Open a channel for publishing with confirms."""
        ...

    async def caller(self, handler: Handler) -> Publisher:
        """Open a channel for publishing, on which what is sent to its messages' `reply_to` `REPLY_TO` comes back.

        Replies are neither kept nor acknowledged: they are lost with the channel.
        """
        ...

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        prefetch: int,
        exclusive: bool = False,
        priority: int | None = None,
    ) -> Consumer:
        """Consume from a queue by its broker name. Raises NotFound, AccessRefused (exclusive taken), ConnectionLost."""
        ...

    async def read(self, stream: str, handler: Handler, *, start: Start, prefetch: int = 1000) -> Consumer:
        """Read a stream. Every message must be acked in time (acks only return credit). Use a connection without jobs:

        some mistakes on a stream close the whole connection.
        """
        ...

    async def passive(self, queue: str) -> QueueState | None:
        """Ask whether a queue or stream exists and how full it is; None when it does not. On a throw-away channel."""
        ...

    async def declare_queue(self, name: str, arguments: Mapping[str, Scalar]) -> None:
        """Declare a durable queue. Raises PreconditionFailed naming the argument that differs, AccessRefused.

        Nothing happens, and nothing is raised, where the user may neither configure it nor learn whether it exists.
        """
        ...

    async def declare_exchange(
        self, name: str, kind: str, *, auto_delete: bool = False, alternate: str | None = None
    ) -> None:
        """Declare a durable exchange (passive first, like all declarations).

        `auto_delete`: it goes with the last queue that it is bound to. `alternate`: the exchange that gets what this
        one has no binding for.
        """
        ...

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange; nothing happens when there is none."""
        ...

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Bind a queue to an exchange."""
        ...

    async def bind_exchange(self, destination: str, source: str, routing_key: str) -> None:
        """Let an exchange get what `source` gets with this key."""
        ...

    async def delete_queue(self, name: str) -> None:
        """Delete a queue or stream and all that is in it."""
        ...

    async def close(self) -> None:
        """Close the connection; safe to repeat."""
        ...
