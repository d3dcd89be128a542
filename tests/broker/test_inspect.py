"""Queue depths from a real broker, with and without its management API."""

from __future__ import annotations

import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import inspect, management, topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, QueueState
from tests.conftest import Eventually


async def test_depths_are_exact_and_unknown_queues_are_found(
    link: Link, settings: Settings, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    for queue in ("default", "mail.out"):
        await topology.ensure_queue(connection, settings, queue)
    publisher = await connection.publisher()
    for _ in range(3):
        await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))
    await connection.consume("queue.mail.out", lambda _: None, prefetch=1)
    expected = {"default": QueueState(3, 0), "mail.out": QueueState(0, 1)}

    async def seen() -> bool:
        return await inspect.queues(connection, settings, {"default"}) == expected

    await eventually(seen)


async def test_the_api_tells_what_comes_and_goes(link: Link, settings: Settings, eventually: Eventually) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_queue(connection, settings, "default")
    publisher = await connection.publisher()

    async def flows() -> bool:
        await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))
        found = (await inspect.queues(connection, settings, {"default"}))["default"]
        return bool(found.rate_in) and found.rate_out == 0

    await eventually(flows)
    assert await inspect.alarm(settings) is None


async def test_the_api_tells_what_a_queue_is_declared_with_not_what_we_would(
    link: Link, settings: Settings, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    others = settings.model_copy(update={"queue_type": "classic", "max_priority": 3})
    await topology.ensure_queue(connection, others, "default")

    async def told() -> bool:
        found = (await inspect.queues(connection, settings, {"default"}))["default"]
        return found.arguments is not None and found.arguments["x-max-priority"] == 3

    await eventually(told)


async def test_without_the_api_the_known_ones_are_asked_for(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    for queue in ("default", "other"):
        await topology.ensure_queue(connection, settings, queue)
    [port] = free_ports(1)
    without = settings.model_copy(update={"management_url": f"http://127.0.0.1:{port}"})
    found = await inspect.queues(connection, without, {"default", "never.declared", "a/b"})
    assert found == {"default": QueueState(0, 0)}
    assert found["default"].arguments is None


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ({"url": "amqp://u:secret@rabbit.example:5673/x"}, "http://rabbit.example:15672"),
        ({"url": "amqps://u:secret@[::1]/, amqps://u:secret@other/"}, "https://[::1]:15671"),
        ({"management_url": "https://m/"}, "https://m:15671"),
        ({"management_url": "http://ann:secret@m:80/rabbit/"}, "http://m:80/rabbit"),
    ],
)
def test_where_the_api_is_looked_for(given: dict[str, str], base: str) -> None:
    assert management.where(Settings(**given)).base == base  # type: ignore[arg-type]
