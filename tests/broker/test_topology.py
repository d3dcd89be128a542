"""The topology on a real broker: declared once, drift named, twice is nothing."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import AccessRefused
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Outgoing
from tests.conftest import Broker
from tests.patience import PATIENCE


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
    await connection.declare_queue("queue.default", topology.classic(connection))
    [remark] = await topology.ensure(connection, settings)
    assert "retries" in remark
    assert "x-max-age" in remark
    assert "\n" not in remark
    classic = settings.model_copy(update={"queue_type": "classic"})
    [remark] = await topology.ensure_queue(connection, classic, "default")
    assert "queue.default" in remark
    assert "x-max-priority" in remark
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))


async def test_a_user_who_may_not_configure_works_on_what_exists(
    link: Link, settings: Settings, broker: Broker, vhost: str
) -> None:
    user = "limited-" + vhost
    with broker.api() as api:
        api.put(f"/users/{user}", json={"password": "secret", "tags": ""}).raise_for_status()
        rights = {"configure": "", "write": ".*", "read": ".*"}
        api.put(f"/permissions/{vhost}/{user}", json=rights).raise_for_status()
    try:
        host = urlsplit(settings.url).netloc.rpartition("@")[2]
        limited = settings.model_copy(update={"url": f"amqp://{user}:secret@{host}/{vhost}"})
        connection = await connect(limited, name="limited")
        with pytest.raises(AccessRefused):
            await topology.ensure(connection, limited)
        await topology.ensure(await link.connection(), settings)
        await topology.ensure_queue(await link.connection(), settings, "default")
        assert await topology.ensure(connection, limited) == []
        assert await topology.ensure_queue(connection, limited, "default") == []
        publisher = await connection.publisher()
        await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))
        await connection.close()
    finally:
        with broker.api() as api:
            api.delete(f"/users/{user}")


async def test_what_is_sent_to_jobs_dead_lands_in_the_stream(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"raw", names.DEAD_EXCHANGE, "anything"))
    arrived: asyncio.Queue[Incoming] = asyncio.Queue()
    await connection.read(names.DEAD, arrived.put_nowait, start="first")
    async with asyncio.timeout(PATIENCE):
        assert (await arrived.get()).body == b"raw"


async def test_an_invalid_queue_name_is_refused(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    for bad in ("", "a/b", "ü", "x" * 201, "a b"):
        with pytest.raises(ValueError, match="queue's name"):
            await topology.ensure_queue(connection, settings, bad)
