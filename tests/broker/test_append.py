"""Appends are exactly once for a fold, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.append import MESSAGE_BYTES, Appender, message_body
from amqpjobs.streams.errors import BrokerUnavailable, ConnectionLost, TooLarge
from amqpjobs.streams.link import Link
from tests.broker.reading import entries, once, read_all
from tests.conftest import Broker
from tests.patience import PATIENCE


@pytest.fixture
async def appender(link: Link, settings: Settings) -> AsyncIterator[Appender]:
    await topology.ensure(await link.connection(), settings)
    appender = Appender(link, names.RETRIES, clock=SystemClock())
    yield appender
    await appender.close()


def entry(number: int, **more: object) -> bytes:
    return json.dumps({"type": "test", "n": number, **more}).encode()


async def test_one_message_at_a_time_and_the_rest_shares_the_next(appender: Appender, link: Link) -> None:
    await asyncio.gather(*(appender.append([entry(2 * n), entry(2 * n + 1)], timeout=PATIENCE) for n in range(50)))
    messages = await read_all(await link.connection(), names.RETRIES)
    assert [each["n"] for message in messages for each in entries(message)] == list(range(100))
    assert len(messages) < 50
    for number, message in enumerate(messages, start=1):
        first, *others = entries(message)
        assert (first["from"], first["seq"]) == (appender.source, number)
        assert all("from" not in each for each in others)


async def test_a_large_request_is_split(appender: Appender, link: Link) -> None:
    await appender.append([entry(n, pad="x" * 300_000) for n in range(10)], timeout=PATIENCE)
    messages = await read_all(await link.connection(), names.RETRIES)
    assert [each["n"] for message in messages for each in entries(message)] == list(range(10))
    assert len(messages) == 4
    assert max(len(message.body) for message in messages) < MESSAGE_BYTES + 200


async def test_without_a_broker_nothing_was_sent(settings: Settings) -> None:
    [port] = free_ports(1)
    link = Link(settings.model_copy(update={"url": f"amqp://127.0.0.1:{port}/"}), "nobody", SystemClock())
    await link.start()
    appender = Appender(link, names.RETRIES, clock=SystemClock())
    with pytest.raises(BrokerUnavailable, match=r"nothing was appended.*cannot reach"):
        await appender.append([entry(1)], timeout=0.5)
    await appender.close()
    await link.stop()


async def test_what_nobody_waits_for_is_not_sent_later(appender: Appender, link: Link) -> None:
    given_up = asyncio.create_task(appender.append([entry(1)], timeout=PATIENCE))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await appender.append([entry(2)], timeout=PATIENCE)
    assert [each["n"] for each in once(await read_all(await link.connection(), names.RETRIES))] == [2]


async def test_one_that_gives_up_holds_up_nobody_behind_it(appender: Appender, link: Link) -> None:
    tasks = [asyncio.create_task(appender.append([entry(n)], timeout=PATIENCE)) for n in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [asyncio.CancelledError, int] * 2
    found = [each["n"] for each in once(await read_all(await link.connection(), names.RETRIES))]
    assert found[-2:] == [1, 3]
    assert found[:-2] in ([], [0])


async def test_closing_tells_whoever_waits(appender: Appender, link: Link) -> None:
    waiting = [asyncio.create_task(appender.append([entry(n)])) for n in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await appender.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in results} == {ConnectionLost}
    with pytest.raises(ValueError, match="JSON object"):
        await appender.append([entry(1), b"[]"], timeout=PATIENCE)
    await appender.append([entry(9)], timeout=PATIENCE)
    assert once(await read_all(await link.connection(), names.RETRIES))[-1]["n"] == 9


async def test_a_deleted_stream_is_declared_again(appender: Appender, link: Link) -> None:
    connection = await link.connection()
    await appender.append([entry(1)], timeout=PATIENCE)
    await connection.delete_queue(names.RETRIES)
    await appender.append([entry(2)], timeout=PATIENCE)
    assert [each["n"] for each in once(await read_all(connection, names.RETRIES))] == [2]


async def test_what_no_message_can_hold_is_told_to_its_caller_only(appender: Appender, link: Link) -> None:
    limit = 129 * MESSAGE_BYTES
    good = asyncio.create_task(appender.append([entry(1)], timeout=PATIENCE))
    with pytest.raises(TooLarge):
        await appender.append([entry(2, pad="x" * limit)], timeout=PATIENCE)
    await good
    await appender.append([entry(3)], timeout=PATIENCE)
    assert [each["n"] for each in once(await read_all(await link.connection(), names.RETRIES))] == [1, 3]


async def test_exactly_once_while_connections_are_closed_by_force(
    appender: Appender, link: Link, broker: Broker, vhost: str
) -> None:
    """Ten writers append all the time; an operator closes the connection twice."""
    written: list[int] = []
    disturbed = asyncio.Event()

    async def write(writer: int) -> None:
        for n in itertools.count():
            await appender.append([entry(writer * 100_000 + n)], timeout=PATIENCE)
            written.append(writer * 100_000 + n)
            if disturbed.is_set():
                return

    async def disturb() -> None:
        closed = 0
        async with asyncio.timeout(PATIENCE):
            while closed < 2:
                closed += await asyncio.to_thread(broker.close_connections, vhost, named="test")
                await asyncio.sleep(0.1)
        disturbed.set()

    await asyncio.gather(disturb(), *(write(writer) for writer in range(10)))
    numbers = [each["n"] for each in once(await read_all(await link.connection(timeout=PATIENCE), names.RETRIES))]
    assert sorted(numbers) == sorted(written)
    for writer in range(10):
        own = [n for n in numbers if n // 100_000 == writer]
        assert own == sorted(own)


def test_the_stamp_is_valid_json_and_comes_last() -> None:
    assert json.loads(message_body([b" {} "], "me", 3)) == {"from": "me", "seq": 3}
    assert json.loads(message_body([b'{"from":"other","seq":9,"a":1}'], 'q"', 4)) == {"from": 'q"', "seq": 4, "a": 1}
    assert json.loads(message_body([b'{"a":1}', b'{"b":2}'], "me", 1)) == [{"a": 1, "from": "me", "seq": 1}, {"b": 2}]
    with pytest.raises(ValueError, match="JSON object"):
        message_body([b"[]"], "me", 1)
