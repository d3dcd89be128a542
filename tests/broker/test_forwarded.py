"""BRK-07: the broker is somewhere else than it says (in a container, behind a forwarded port). Nothing but the address
that we were given is ever dialled: AMQP 0-9-1 has no advertised hosts, and the HTTP API may be out of reach."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import inspect
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import BrokerUnavailable
from amqpjobs.streams.port import QueueState
from tests.broker.conftest import Workers
from tests.conftest import Eventually
from tests.forwarding import forwarding


@pytest.fixture
async def forwarded(settings: Settings) -> AsyncIterator[Settings]:
    """Settings by which the broker is reached through a port of another number, and its HTTP API not at all."""
    [closed] = free_ports(1)
    async with forwarding(settings) as (_, away):
        yield away.model_copy(update={"management_url": f"http://127.0.0.1:{closed}"})


async def test_brk_07_everything_works_through_a_forwarded_port(
    forwarded: Settings, workers: Workers, eventually: Eventually
) -> None:
    jobs, done = Registry(), []

    @jobs.job(name="Note")
    async def note(text: str) -> None:
        done.append(text)

    await workers(jobs, target=forwarded)
    scheduler = Scheduler(forwarded, SystemClock())
    await scheduler.start()
    try:
        async with Client(forwarded) as client:
            await client.enqueue("Note", "now")
            await client.enqueue_in(0.5, "Note", "later")
        await eventually(lambda: sorted(done) == ["later", "now"])
    finally:
        await scheduler.stop()
    await workers.stop()
    connection = await connect(forwarded, name="test")
    assert await inspect.queues(connection, forwarded, {"default"}) == {"default": QueueState(0, 0)}
    await connection.close()


async def test_brk_07_a_host_that_nobody_knows_is_named(settings: Settings) -> None:
    lost = settings.model_copy(update={"url": "amqp://guest:secret@rabbit-in-a-container.invalid:5672/"})
    with pytest.raises(BrokerUnavailable, match=r"rabbit-in-a-container\.invalid") as caught:
        await connect(lost, name="test")
    assert "secret" not in str(caught.value)
