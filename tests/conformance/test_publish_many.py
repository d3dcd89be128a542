"""Publishing in batches: each message has its own end, whatever becomes of the others."""

from __future__ import annotations

import asyncio

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import ConnectionLost, Nacked, NotFound, Refused, TooLarge, Unroutable
from amqpjobs.streams.port import Batch, Connection, Outgoing, Properties, Publisher
from tests.broker.reading import take_all
from tests.conformance.conftest import Connect
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

CLASSIC = {"x-queue-type": "classic"}


@pytest.fixture
async def publisher(connection: Connection) -> Publisher:
    await connection.declare_queue("q", CLASSIC)
    return await connection.publisher()


def batch(*keys: str, body: bytes = b"{}") -> Batch:
    return Batch([Outgoing(body, "", key, Properties(message_id=f"{n}")) for n, key in enumerate(keys)])


def kinds(batch: Batch) -> dict[int, type[Exception]]:
    return {index: type(error) for index, error in batch.failed.items()}


async def test_all_arrive_in_order_and_after_the_batch_before(connection: Connection, publisher: Publisher) -> None:
    """2,000 of them: the broker confirms many with one frame. Some are larger than a frame, and than a write."""
    sizes = [300_000 if n % 400 == 7 else n % 50 for n in range(2000)]
    messages = [Outgoing(b"%d " % n + b"x" * size, "", "q") for n, size in enumerate(sizes)]
    batches = [Batch(messages[:900]), Batch(messages[900:1900]), Batch(messages[1900:])]
    tasks = [asyncio.create_task(publisher.publish_many(each)) for each in batches]
    await asyncio.gather(*tasks)
    assert all(not each.pending and not each.failed and each.sent == len(each.messages) for each in batches)
    found = await take_all(connection, "q", 2000)
    assert [each.body for each in found] == [each.body for each in messages]


async def test_properties_of_every_shape_arrive(connection: Connection, publisher: Publisher) -> None:
    shapes = [
        Properties(message_id="é" * 127),
        Properties(message_id="0", priority=0),
        Properties(message_id="a", priority=7),
        Properties(message_id="b", priority=7, headers={"n": 1}),
        Properties(message_id="c", type="t", content_type=None),
        Properties(message_id="d", correlation_id="c", reply_to="r", content_encoding="utf-8"),
    ]
    sent = Batch([Outgoing(b"" if n % 2 else b"{}", "", "q", each) for n, each in enumerate(shapes)])
    await publisher.publish_many(sent)
    found = await take_all(connection, "q", len(shapes))
    assert [(each.body, each.properties) for each in found] == [(each.body, each.properties) for each in sent.messages]


async def test_nothing_is_a_batch_too(publisher: Publisher) -> None:
    await publisher.publish_many(Batch([]))


async def test_what_nothing_takes_is_told_and_only_that(connection: Connection, publisher: Publisher) -> None:
    keys = ["q", "nowhere", "q", "elsewhere", "nowhere"] * 100
    first, second = batch(*keys), batch(*keys)
    await asyncio.gather(publisher.publish_many(first), publisher.publish_many(second))
    for each in (first, second):
        assert each.pending == set()
        assert kinds(each) == {n: Unroutable for n, key in enumerate(keys) if key != "q"}
        assert all(f"'{keys[n]}'" in str(error) for n, error in each.failed.items())
    assert len(await take_all(connection, "q", 400)) == 400


async def test_what_is_not_mandatory_may_vanish(publisher: Publisher) -> None:
    lost = batch("nowhere", "q")
    await publisher.publish_many(lost, mandatory=False)
    assert lost.failed == {}


async def test_what_the_queue_refuses_to_keep_is_nacked(connection: Connection) -> None:
    await connection.declare_queue("full", {**CLASSIC, "x-max-length": 3, "x-overflow": "reject-publish"})
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    sent = batch(*["full", "q"] * 20)
    await publisher.publish_many(sent)
    assert {n % 2 for n in sent.failed} == {0}
    if connection.server["product"] == "LavinMQ":  # it returns some of them, and may keep one that it refused
        assert set(kinds(sent).values()) <= {Nacked, Unroutable}
        return
    assert set(kinds(sent).values()) == {Nacked}
    assert len(await take_all(connection, "full", 20 - len(sent.failed))) == 20 - len(sent.failed)


async def test_what_cannot_be_sent_harms_no_other(connection: Connection, publisher: Publisher) -> None:
    bad = {
        1: (Outgoing(bytes(128 * 1024 * 1024 + 1), "", "q"), TooLarge),
        2: (Outgoing(b"", "", "k" * 300), Refused),
        4: (Outgoing(b"", "", "q", Properties(message_id="x" * 300)), Refused),
        6: (Outgoing(b"", "", "q", Properties(message_id="p", priority=300)), Refused),
    }
    messages = [bad[n][0] if n in bad else Outgoing(b"%d" % n, "", "q") for n in range(7)]
    sent = Batch(messages)
    await publisher.publish_many(sent)
    assert sent.pending == set()
    assert kinds(sent) == {n: error for n, (_, error) in bad.items()}
    assert [each.body for each in await take_all(connection, "q", 3)] == [b"0", b"3", b"5"]


async def test_a_missing_exchange_is_the_fault_of_its_messages_only(
    connection: Connection, publisher: Publisher
) -> None:
    messages = [Outgoing(b"{}", "no-such" if n == 50 else "", "q") for n in range(100)]
    sent = Batch(messages)
    await publisher.publish_many(sent)
    assert sent.pending == set()
    assert type(sent.failed[50]) is NotFound
    assert {type(error) for n, error in sent.failed.items() if n != 50} <= {ConnectionLost}
    assert {51, 99} <= set(sent.failed)
    late = batch("q", "q")
    await publisher.publish_many(late)
    assert kinds(late) == {0: ConnectionLost, 1: ConnectionLost}
    assert connection.lost.done() is False


async def test_a_cancelled_batch_harms_no_other(connection: Connection, publisher: Publisher) -> None:
    first, second = batch(*["q"] * 500), batch(*["q", "nowhere"] * 250)
    tasks = [asyncio.create_task(publisher.publish_many(each)) for each in (first, second)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert first.failed == {}
    assert kinds(second) == dict.fromkeys(range(1, 500, 2), Unroutable)


async def test_a_connection_closed_by_force_tells_of_each_message(
    connect: Connect, settings: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await connect(settings, name="victim")
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    sent: list[Batch] = []

    async def publish() -> None:
        while not sent or not sent[-1].failed:
            sent.append(batch(*["q"] * 300, body=b"x" * 5000))
            await publisher.publish_many(sent[-1])

    async def closed() -> bool:
        await asyncio.to_thread(broker.close_connections, vhost, named="victim")
        return connection.lost.done()

    publishing = asyncio.gather(*(publish() for _ in range(3)))
    await eventually(closed)
    async with asyncio.timeout(PATIENCE):
        await publishing
    assert all(each.pending == set() for each in sent)
    assert {error for each in sent for error in kinds(each).values()} == {ConnectionLost}
    await connection.close()


async def test_a_blocked_broker_holds_a_batch_up_and_the_socket_what_it_can(
    connect: Connect, node: PrivateNode, settings: Settings, eventually: Eventually
) -> None:
    own = settings.model_copy(update={"url": node.url, "management_url": node.management_url})
    connection = await connect(own, name="blocked")
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    await node.ctl("set_vm_memory_high_watermark", "absolute", "1")
    probe = asyncio.create_task(publisher.publish_many(batch("q")))
    await eventually(lambda: connection.blocked)
    large = Batch([Outgoing(bytes(1_000_000), "", "q") for _ in range(40)])
    publishing = asyncio.create_task(publisher.publish_many(large))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.shield(publishing)
    assert large.failed == {}
    await node.ctl("set_vm_memory_high_watermark", "0.6")
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(probe, publishing)
    assert large.pending == set()
    assert large.failed == {}
    assert large.sent == 40
    await connection.close()
