"""The topology on a real broker: declared once, drift named, twice is nothing."""

from __future__ import annotations

import asyncio

import pytest

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.aio import connect
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Outgoing


async def test_everything_exists_afterwards_and_again_is_quiet(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    assert await topology.ensure(connection, settings) == []
    assert await topology.ensure(connection, settings) == []
    for name in (*names.STREAMS, names.LEADER_QUEUE, names.UNROUTED):
        assert await connection.passive(name) is not None


async def test_many_processes_declare_at_once(settings: Settings) -> None:
    connections = await asyncio.gather(*(connect(settings, name=f"setup {n}") for n in range(4)))
    remarks = await asyncio.gather(*(topology.ensure(each, settings) for each in connections))
    assert remarks == [[], [], [], []]
    await asyncio.gather(*(each.close() for each in connections))


async def test_drift_names_the_argument_and_serves(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    other = settings.model_copy(update={"streams": {names.RETRIES: {"max_age": "7D"}}})
    await topology.ensure_stream(connection, other, names.RETRIES)
    await connection.declare_queue("queue.default", {"x-queue-type": "classic"})
    [remark] = await topology.ensure(connection, settings)
    assert "retries" in remark
    assert "x-max-age" in remark
    assert "\n" not in remark
    [remark] = await topology.ensure_queue(connection, "default")
    assert "queue.default" in remark
    assert "x-max-priority" in remark
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))


async def test_what_is_sent_to_jobs_dead_lands_in_the_stream(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"raw", names.DEAD_EXCHANGE, "anything"))
    arrived: asyncio.Queue[Incoming] = asyncio.Queue()
    await connection.read(names.DEAD, arrived.put_nowait, start="first")
    async with asyncio.timeout(10):
        assert (await arrived.get()).body == b"raw"


async def test_an_invalid_queue_name_is_refused(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    for bad in ("", "a/b", "ü", "x" * 201, "a b"):
        with pytest.raises(ValueError, match="queue's name"):
            await topology.ensure_queue(connection, bad)
