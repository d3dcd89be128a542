"""The port's promises, kept by every driver on a real broker. `connect` is the driver under test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from amqpjobs.settings import Settings
from amqpjobs.streams.errors import (
    AccessRefused,
    BrokerUnavailable,
    ConnectionLost,
    ConsumerCancelled,
    NotFound,
    PreconditionFailed,
    Refused,
    TooLarge,
    Unroutable,
)
from amqpjobs.streams.port import (
    REPLY_TO,
    Connection,
    FromTime,
    Incoming,
    Outgoing,
    Properties,
    QueueState,
    Scalar,
    Start,
)
from tests.broker.reading import read_all
from tests.conformance.conftest import Connect
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

CLASSIC = {"x-queue-type": "classic"}
STREAM = {"x-queue-type": "stream", "x-max-age": "1D"}


class Inbox:
    """A handler that keeps what comes."""

    def __init__(self) -> None:
        self.messages: list[Incoming] = []
        self.changed = asyncio.Event()

    def __call__(self, message: Incoming) -> None:
        self.messages.append(message)
        self.changed.set()

    async def of(self, count: int) -> list[Incoming]:
        async with asyncio.timeout(PATIENCE):
            while len(self.messages) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.messages


async def fill(connection: Connection, queue: str, bodies: list[bytes]) -> None:
    publisher = await connection.publisher()
    for body in bodies:
        await publisher.publish(Outgoing(body, "", queue))
    await publisher.close()


def numbers(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


# Connecting.


async def test_who_the_broker_is_and_what_it_calls_us(connection: Connection, broker: Broker) -> None:
    assert connection.server["product"]
    assert connection.server["version"]
    assert connection.blocked is None
    await connection.unblocked()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("guest:guest@", "guest:wrong@"), AccessRefused, "user or password"),
        (("/t-", "/no-such-t-"), AccessRefused, "no such virtual host"),
        (("amqp://", "http://"), Refused, "must look like"),
        (("guest@127.0.0.1:", "guest@127.0.0.1:1"), BrokerUnavailable, "cannot reach|must look like"),
    ],
)
async def test_why_it_cannot_connect(
    change: tuple[str, str], error: type[Exception], says: str, connect: Connect, settings: Settings
) -> None:
    url = settings.url.replace(*change)
    if "127.0.0.1:1" in change[1]:
        url = "amqp://guest:guest@127.0.0.1:1/"
    with pytest.raises(error, match=says) as caught:
        await connect(settings.model_copy(update={"url": url}), name="conformance")
    assert "guest" not in str(caught.value)
    assert "wrong" not in str(caught.value)


async def test_after_close_everything_is_lost_without_a_reason(connect: Connect, settings: Settings) -> None:
    connection = await connect(settings, name="conformance")
    publisher = await connection.publisher()
    await connection.declare_queue("q", CLASSIC)
    consumer = await connection.consume("q", Inbox(), prefetch=1)
    await connection.close()
    await connection.close()
    assert connection.lost.done()
    assert connection.lost.exception() is None
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([publisher.lost, consumer.lost])
    with pytest.raises(ConnectionLost):
        await publisher.publish(Outgoing(b"", "", "q"))
    with pytest.raises(ConnectionLost):
        await connection.passive("q")
    consumer.ack(1)
    await consumer.close()
    await publisher.close()


# Declaring.


async def test_declare_bind_passive_delete(connection: Connection) -> None:
    assert await connection.passive("q") is None
    await connection.declare_exchange("x", "direct")
    await connection.declare_exchange("x", "direct")
    await connection.declare_queue("q", CLASSIC)
    await connection.declare_queue("q", CLASSIC)
    await connection.bind("q", "x", "key")
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"1", "x", "key"))
    assert await connection.passive("q") == QueueState(ready=1, consumers=0)
    await connection.delete_queue("q")
    assert await connection.passive("q") is None


async def test_an_exchange_goes_with_the_last_queue_that_it_is_bound_to(connection: Connection) -> None:
    for kind, name in (("direct", "x"), ("fanout", "others")):
        await connection.declare_exchange(name, kind)
    for queue in ("q", "rest"):
        await connection.declare_queue(queue, CLASSIC)
    await connection.bind("rest", "others", "")
    for _ in range(2):
        await connection.declare_exchange("beside", "direct", auto_delete=True, alternate="others")
    await connection.bind("q", "beside", "one")
    await connection.bind_exchange("beside", "x", "one")
    await connection.bind_exchange("beside", "x", "two")
    publisher = await connection.publisher()
    for key in ("one", "two", "two"):
        await publisher.publish(Outgoing(key.encode(), "x", key))
    assert [await connection.passive(queue) for queue in ("q", "rest")] == [QueueState(1, 0), QueueState(2, 0)]
    await connection.delete_queue("q")
    with pytest.raises(Unroutable):
        await publisher.publish(Outgoing(b"3", "x", "two"))
    for name in ("x", "never there"):
        await connection.delete_exchange(name)
    with pytest.raises(NotFound):
        await connection.bind("rest", "x", "one")


async def test_drift_is_named_and_the_connection_lives_on(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    names_it = connection.server["product"] == "RabbitMQ"  # LavinMQ: "declared with other arguments"
    with pytest.raises(PreconditionFailed, match="x-max-priority" if names_it else "'q' declared with other arg"):
        await connection.declare_queue("q", {**CLASSIC, "x-max-priority": 10})
    await connection.declare_queue("s", STREAM)
    with pytest.raises(PreconditionFailed, match="x-max-age" if names_it else "'s' declared with other arg"):
        await connection.declare_queue("s", {**STREAM, "x-max-age": "2D"})
    await connection.declare_exchange("x", "direct")
    with pytest.raises(PreconditionFailed, match="type" if names_it else "'x' declared with other arg"):
        await connection.declare_exchange("x", "fanout")
    with pytest.raises(NotFound):
        await connection.bind("q", "no-such-exchange", "k")
    assert await connection.passive("q") is not None
    assert not connection.lost.done()


# Publishing.


async def test_every_property_arrives_and_the_message_is_persistent(connection: Connection) -> None:
    await connection.declare_queue("q", {**CLASSIC, "x-max-priority": 10})
    properties = Properties(
        message_id="m",
        correlation_id="c",
        reply_to="r",
        content_type="text/x",
        content_encoding="utf-8",
        priority=10,
        type="t",
        headers={"s": "ü", "i": 7, "big": 2**40, "neg": -5, "f": 1.5, "yes": True, "none": None},
    )
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"\x00\xff", "", "q", properties))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=1)
    [message] = await inbox.of(1)
    assert message.body == b"\x00\xff"
    assert message.properties == properties
    assert (message.exchange, message.routing_key, message.redelivered, message.offset) == ("", "q", False, None)
    consumer.ack(message.tag)
    await consumer.close()


async def test_an_empty_body_and_one_of_many_frames(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    large = bytes(range(256)) * 4096 * 3
    await fill(connection, "q", [b"", large, b"after"])
    inbox = Inbox()
    await connection.consume("q", inbox, prefetch=10)
    assert [message.body for message in await inbox.of(3)] == [b"", large, b"after"]


async def test_what_nothing_takes_is_returned_and_only_that(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    keys = ["q", "nowhere"] * 50
    results = await asyncio.gather(*(publisher.publish(Outgoing(b"", "", key)) for key in keys), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), Unroutable] * 50
    await publisher.publish(Outgoing(b"", "", "nowhere"), mandatory=False)
    state = await connection.passive("q")
    assert state is not None
    assert state.ready == 50


async def test_what_does_not_fit_is_not_sent(connection: Connection) -> None:
    publisher = await connection.publisher()
    with pytest.raises(TooLarge):
        await publisher.publish(Outgoing(bytes(128 * 1024 * 1024 + 1), "", "q"))
    assert not publisher.lost.done()


async def test_what_cannot_be_written_is_refused_and_the_channel_lives_on(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    for bad in (Properties(message_id="x" * 300), Properties(headers={"huge": 2**80}), Properties(priority=300)):
        with pytest.raises(Refused):
            await publisher.publish(Outgoing(b"", "", "q", bad))
    with pytest.raises(Refused):
        await publisher.publish(Outgoing(b"", "", "k" * 300))
    await publisher.publish(Outgoing(b"", "", "q"))


async def test_a_missing_exchange_ends_the_channel_and_no_other(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    publisher, other = await connection.publisher(), await connection.publisher()
    with pytest.raises(NotFound, match="no-such"):
        await publisher.publish(Outgoing(b"", "no-such", "q"))
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([publisher.lost])
    with pytest.raises(ConnectionLost):
        await publisher.publish(Outgoing(b"", "", "q"))
    await other.publish(Outgoing(b"", "", "q"))


async def test_a_cancelled_publish_harms_no_other(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    tasks = [asyncio.create_task(publisher.publish(Outgoing(b"", "", "q"))) for _ in range(200)]
    for number in (0, 20, 100, 199):
        await asyncio.sleep(0)
        tasks[number].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in results} <= {type(None), asyncio.CancelledError}
    assert sum(each is None for each in results) >= 196
    await publisher.publish(Outgoing(b"", "", "q"))


# Consuming.


async def test_deliveries_come_in_order(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(500))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=100)

    async def acknowledge() -> None:
        done = 0
        while done < 500:
            done = len(await inbox.of(done + 1))
            consumer.ack(inbox.messages[done - 1].tag, multiple=True)

    async with asyncio.timeout(PATIENCE):
        await acknowledge()
    assert [message.body for message in inbox.messages] == numbers(500)


async def test_prefetch_nack_and_what_is_unacked_comes_back(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(5))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=2)
    first, second = (await inbox.of(2))[:2]
    consumer.nack(first.tag, requeue=True)
    third = (await inbox.of(3))[2]
    assert (third.body, third.redelivered) == (b"0", True)
    consumer.nack(second.tag, requeue=False)
    assert (await inbox.of(4))[3].body == b"2"
    await consumer.close()
    again = Inbox()
    await connection.consume("q", again, prefetch=10)
    assert [message.body for message in await again.of(4)] == [b"0", b"2", b"3", b"4"]
    assert len(inbox.messages) == 4


async def test_cancel_keeps_the_channel_for_acks(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(3))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=2)
    await inbox.of(2)
    await consumer.cancel()
    await consumer.cancel()
    assert consumer.lost.done()
    assert consumer.lost.exception() is None
    for message in inbox.messages:
        consumer.ack(message.tag)
    await consumer.close()
    rest = Inbox()
    await connection.consume("q", rest, prefetch=10)
    assert [message.body for message in await rest.of(1)] == [b"2"]
    assert len(inbox.messages) == 2


async def test_a_deleted_queue_ends_its_consumer_and_nothing_else(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await connection.declare_queue("s", STREAM)
    consumer = await connection.consume("q", Inbox(), prefetch=1)
    reader = await connection.read("s", Inbox(), start="first")
    for name, subscription in (("q", consumer), ("s", reader)):
        await connection.delete_queue(name)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([subscription.lost])
        assert isinstance(subscription.lost.exception(), ConsumerCancelled)
    assert not connection.lost.done()


async def test_an_exclusive_consumer_is_alone(connect: Connect, connection: Connection, settings: Settings) -> None:
    await connection.declare_queue("q", CLASSIC)
    holder = await connection.consume("q", Inbox(), prefetch=1, exclusive=True)
    other = await connect(settings, name="other")
    for each in (other, connection):
        with pytest.raises(AccessRefused):
            await each.consume("q", Inbox(), prefetch=1, exclusive=True)
    await holder.close()
    heir = await other.consume("q", Inbox(), prefetch=1, exclusive=True)
    assert not heir.lost.done()
    await other.close()


async def test_a_missing_queue_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFound):
        await connection.consume("no-such", Inbox(), prefetch=1)
    with pytest.raises(NotFound):
        await connection.read("no-such", Inbox(), start="first")
    assert not connection.lost.done()


async def test_a_consumer_of_higher_priority_is_served_first(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    low, high = Inbox(), Inbox()
    await connection.consume("q", low, prefetch=10, priority=0)
    await connection.consume("q", high, prefetch=10, priority=5)
    await fill(connection, "q", numbers(4))
    await high.of(4)
    assert low.messages == []


async def test_a_handler_that_raises_stops_nothing(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(3))
    seen: list[bytes] = []
    done = asyncio.Event()

    def handler(message: Incoming) -> None:
        seen.append(message.body)
        if len(seen) == 3:
            done.set()
        raise RuntimeError("by a mistake")

    await connection.consume("q", handler, prefetch=10)
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    assert seen == numbers(3)


# Streams.


async def test_where_a_stream_is_read_from(connection: Connection) -> None:
    await connection.declare_queue("s", STREAM)
    await fill(connection, "s", numbers(20))
    messages = await read_all(connection, "s")
    assert [message.body for message in messages] == numbers(20)
    offsets = [message.offset for message in messages]
    assert offsets == sorted(set(offsets), key=lambda offset: offset or 0)
    fifth = offsets[5]
    assert fifth is not None
    inclusive = Inbox()
    await connection.read("s", inclusive, start=fifth)
    assert (await inclusive.of(15))[0].body == b"5"
    fresh, last, ancient = Inbox(), Inbox(), Inbox()
    await connection.read("s", fresh, start="next")
    await connection.read("s", last, start="last")
    await connection.read("s", ancient, start=FromTime(1.0))
    assert (await ancient.of(21))[0].body == b"0"
    await last.of(1)
    assert fresh.messages == []
    await fill(connection, "s", [b"new"])
    assert [message.body for message in await fresh.of(1)] == [b"new"]


async def test_acks_give_a_stream_reader_more(connection: Connection) -> None:
    await connection.declare_queue("s", STREAM)
    await fill(connection, "s", numbers(300))
    seen: list[bytes] = []
    done = asyncio.Event()

    def handler(message: Incoming) -> None:
        seen.append(message.body)
        reader.ack(message.tag)
        if len(seen) == 300:
            done.set()

    reader = await connection.read("s", handler, start="first", prefetch=10)
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    assert seen == numbers(300)


async def test_scalar_headers_survive_a_stream(connection: Connection) -> None:
    await connection.declare_queue("s", STREAM)
    headers: dict[str, Scalar] = {"s": "ü", "i": 7, "f": 1.5, "yes": True}
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(json.dumps({}).encode(), "", "s", Properties(message_id="m", headers=headers)))
    [message] = await read_all(connection, "s")
    assert message.properties.headers == headers
    assert message.properties.message_id == "m"


# Losing the connection.


async def test_a_connection_closed_by_force_tells_everybody(
    connect: Connect, settings: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await connect(settings, name="victim")
    await connection.declare_queue("q", CLASSIC)
    consumer = await connection.consume("q", Inbox(), prefetch=1)
    publisher = await connection.publisher()
    publishing = asyncio.create_task(publish_until_lost(publisher.publish))

    async def closed() -> bool:
        await asyncio.to_thread(broker.close_connections, vhost, named="victim")
        return connection.lost.done()

    await eventually(closed)
    async with asyncio.timeout(PATIENCE):
        await publishing
        await asyncio.wait([publisher.lost, consumer.lost])
    for future in (connection.lost, publisher.lost, consumer.lost):
        assert isinstance(future.exception(), ConnectionLost)
    with pytest.raises(ConnectionLost):
        await connection.publisher()
    await connection.close()


async def publish_until_lost(publish: Callable[[Outgoing], Awaitable[None]]) -> None:
    """A hundred at once, so that some wait for the socket when it goes."""

    async def one() -> None:
        while True:
            await publish(Outgoing(b"x" * 1000, "", "q"))

    results = await asyncio.gather(*(one() for _ in range(100)), return_exceptions=True)
    assert {type(each) for each in results} == {ConnectionLost}


@pytest.mark.parametrize("start", ["first", "last", "next", 0, FromTime(0.0)], ids=str)
async def test_a_reader_of_an_empty_stream_is_told_the_offsets_that_all_are_told(
    connection: Connection, start: Start
) -> None:
    """On LavinMQ one that begins at a word while the stream is empty is told offsets that are one too low, and costs
    the broker a core from the first message on."""
    await connection.declare_queue("s", STREAM)
    early, late = Inbox(), Inbox()
    reader = await connection.read("s", early, start=start)
    publisher = await connection.publisher()
    for body in (b"0", b"1", b"2"):
        await publisher.publish(Outgoing(body, "", "s"))
    await early.of(3)
    other = await connection.read("s", late, start=0)
    await late.of(3)
    assert [each.offset for each in early.messages] == [each.offset for each in late.messages]
    await reader.close()
    await other.close()


async def test_a_reply_comes_to_the_channel_that_asked(connection: Connection) -> None:
    """By the broker's direct reply-to, through a stream as well; replies to nobody are dropped."""
    await connection.declare_queue("asked", STREAM)
    replies, asked = Inbox(), Inbox()
    caller, answering = await connection.caller(replies), await connection.publisher()
    reader = await connection.read("asked", asked, start="first")
    await caller.publish(Outgoing(b"question", "", "asked", Properties(reply_to=REPLY_TO, correlation_id="c")))
    (question,) = await asked.of(1)
    to = question.properties.reply_to
    assert to is not None
    assert to.startswith((f"{REPLY_TO}.", "amq.direct.reply-to."))  # LavinMQ's begin with the latter
    await answering.publish(Outgoing(b"x" * 200_000, "", to, Properties(correlation_id="c")), mandatory=False)
    (reply,) = await replies.of(1)
    assert (len(reply.body), reply.properties.correlation_id) == (200_000, "c")
    with pytest.raises(Unroutable):
        await caller.publish(Outgoing(b"returned", "", "no queue of this name"))
    await reader.close()
    await caller.close()
    await answering.publish(Outgoing(b"late", "", to), mandatory=False)
