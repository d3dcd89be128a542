"""Quorum queues: as job queues where the settings ask for them, and as the default of a virtual host."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.scheduler.election import Election
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import AccessRefused, PreconditionFailed
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Incoming, Outgoing, Properties
from tests.broker.conftest import Watches, Workers
from tests.broker.reading import take_all
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

JOBS = "queue.default"
PUBLISHED = (None, 0, 5, 10, 3, None, 9, 4)
IN_ORDER_OF_PRIORITY = {
    "classic": [10, 9, 5, 4, 3, None, 0, None],
    # From RabbitMQ 4.3 on; no priority means 4 there, as in AMQP 1.0.
    "quorum": [10, 9, 5, None, None, 4, 3, 0],
}
FROM_4_3 = (4, 3)
FROM_4_0 = (4, 0)


@pytest.fixture(params=["classic", "quorum"])
def typed(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings with this type of job queues."""
    return settings.model_copy(update={"queue_type": request.param})


@pytest.fixture
def quorum(settings: Settings) -> Settings:
    return settings.model_copy(update={"queue_type": "quorum"})


def version(connection: Connection) -> tuple[int, ...]:
    return tuple(int(part) for part in connection.server["version"].split(".")[:2])


async def declare(connection: Connection, settings: Settings) -> None:
    assert await topology.ensure(connection, settings) == []
    assert await topology.ensure_queue(connection, settings, "default") == []


def types(broker: Broker, vhost: str) -> dict[str, str]:
    with broker.api() as api:
        listed = api.get(f"/queues/{vhost}").raise_for_status().json()
    return {each["name"]: each["type"] for each in listed}


async def all_listed(broker: Broker, vhost: str, eventually: Eventually) -> dict[str, str]:
    """The types once the API, which lags, knows all of them."""
    wanted = {JOBS, names.LEADER_QUEUE, names.UNROUTED, *names.STREAMS}

    async def found() -> dict[str, str] | None:
        listed = await asyncio.to_thread(types, broker, vhost)
        return listed if wanted <= set(listed) else None

    answer: dict[str, str] = await eventually(found)
    return answer


@pytest.mark.rabbitmq("it has one type of queues beside streams, and its API names none")
async def test_only_job_queues_follow_the_setting(
    link: Link, typed: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    await declare(await link.connection(), typed)
    await declare(await link.connection(), typed)  # what exists as it should be is no drift
    listed = await all_listed(broker, vhost, eventually)
    assert listed[JOBS] == typed.queue_type
    assert {listed[names.LEADER_QUEUE], listed[names.UNROUTED]} == {"classic"}
    assert {listed[stream] for stream in names.STREAMS} == {"stream"}


@pytest.mark.rabbitmq("it has no quorum queues")
@pytest.mark.parametrize("existing", ["classic", "quorum"])
async def test_a_queue_of_the_other_type_is_named_and_serves(existing: str, link: Link, settings: Settings) -> None:
    connection = await link.connection()
    first = settings.model_copy(update={"queue_type": existing})
    await declare(connection, first)
    other = settings.model_copy(update={"queue_type": "quorum" if existing == "classic" else "classic"})
    [remark] = await topology.ensure_queue(connection, other, "default")
    assert "queue queue.default exists with other arguments and is used as it is" in remark
    assert re.search("x-queue-type|x-max-priority", remark)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default"))


async def test_priorities_are_those_that_the_broker_has(link: Link, typed: Settings) -> None:
    connection = await link.connection()
    await declare(connection, typed)
    publisher = await connection.publisher()
    for priority in PUBLISHED:
        job = Outgoing(b"{}", names.JOBS_EXCHANGE, "default", Properties(priority=priority))
        await publisher.publish(job)
    taken = [message.properties.priority for message in await one_at_a_time(connection, len(PUBLISHED))]
    if connection.server["product"] == "LavinMQ":  # whatever the setting says
        assert taken == IN_ORDER_OF_PRIORITY["classic"]
    elif typed.queue_type == "classic" or version(connection) >= FROM_4_3:
        assert taken == IN_ORDER_OF_PRIORITY[typed.queue_type]
    elif version(connection) >= FROM_4_0:
        # Two levels, two of the higher one (5 and above) for one of the lower, each in order of arrival.
        assert taken == [5, 10, None, 9, 0, 3, None, 4]
    else:
        assert taken == list(PUBLISHED)


@pytest.mark.rabbitmq("a priority above the highest of its queue ends its consumer's connection")
@pytest.mark.parametrize(
    ("highest", "expected"), [(0, list(PUBLISHED)), (4, [5, 10, 9, 4, 3, None, 0, None])], ids=["none", "four"]
)
async def test_a_site_chooses_how_many_priorities_its_queues_have(
    highest: int, expected: list[int | None], link: Link, settings: Settings
) -> None:
    connection = await link.connection()
    await declare(connection, settings.model_copy(update={"queue_type": "classic", "max_priority": highest}))
    publisher = await connection.publisher()
    for priority in PUBLISHED:
        await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default", Properties(priority=priority)))
    taken = await one_at_a_time(connection, len(PUBLISHED))
    assert [message.properties.priority for message in taken] == expected


async def one_at_a_time(connection: Connection, count: int) -> list[Incoming]:
    """So many messages of the job queue, each taken after the one before was acknowledged."""
    found: asyncio.Queue[Incoming] = asyncio.Queue()
    consumer = await connection.consume(JOBS, found.put_nowait, prefetch=1)
    taken = []
    async with asyncio.timeout(PATIENCE):
        for _ in range(count):
            taken.append(await found.get())
            consumer.ack(taken[-1].tag)
    await consumer.close()
    return taken


async def test_a_job_that_is_given_back_often_is_not_taken_for_poison(link: Link, quorum: Settings) -> None:
    """From 4.0 the broker would drop it at the 20th return, if nobody told it otherwise."""
    connection = await link.connection()
    await declare(connection, quorum)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b"precious", names.JOBS_EXCHANGE, "default"))
    found: asyncio.Queue[Incoming] = asyncio.Queue()
    consumer = await connection.consume(JOBS, found.put_nowait, prefetch=1)
    async with asyncio.timeout(PATIENCE):
        for _ in range(50):
            consumer.nack((await found.get()).tag)
        assert (await found.get()).body == b"precious"
    await consumer.close()
    assert [message.body for message in await take_all(connection, JOBS, 1)] == [b"precious"]


async def test_jobs_fail_wait_and_run_again_on_a_quorum_queue(
    quorum: Settings, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    jobs, runs = Registry(), []

    @jobs.job(name="Flaky")
    async def flaky(number: int) -> None:
        runs.append(number)
        if runs.count(number) == 1:
            raise ValueError("once")

    metrics = await watch(names.METRICS, quorum)
    link = Link(quorum, "producer", SystemClock())
    await link.start()
    await workers(jobs, target=quorum)
    async with leading(quorum, eventually):
        publisher = await (await link.connection(timeout=PATIENCE)).publisher()
        for number in range(10):
            body = b'{"class":"Flaky","args":[%d],"retry_delays":[0]}' % number
            await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, "default"))
        await metrics.until(20)
    await link.stop()
    assert sorted(runs) == sorted([*range(10), *range(10)])
    assert sorted(metric["status"] for metric in metrics.entries) == ["failed"] * 10 + ["success"] * 10
    assert await workers.left() == 0


@asynccontextmanager
async def leading(settings: Settings, eventually: Eventually) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    try:
        await eventually(lambda: scheduler.leading)
        yield scheduler
    finally:
        await scheduler.stop()


# A virtual host whose queues are quorum queues unless they say otherwise.


@pytest.fixture
def by_default(broker: Broker, tmp_path: Path) -> Iterator[Settings]:
    # The field's name up to 3.10, and since.
    vhost = broker.create_vhost(defaultqueuetype="quorum", default_queue_type="quorum")
    yield Settings(url=broker.url_of(vhost), management_url=broker.management_url, state_dir=tmp_path / "state")
    broker.delete_vhost(vhost)


@pytest.mark.rabbitmq("it has no quorum queues")
async def test_a_virtual_host_of_quorum_queues_gets_ours_as_they_must_be(
    by_default: Settings, broker: Broker, eventually: Eventually
) -> None:
    connection = await connect(by_default, name="test")
    await connection.declare_queue("plain", {})
    await declare(connection, by_default)
    listed = await all_listed(broker, by_default.url.rpartition("/")[2], eventually)
    assert listed["plain"] == "quorum", "the virtual host does not do what this test is about"
    assert {listed[JOBS], listed[names.LEADER_QUEUE], listed[names.UNROUTED]} == {"classic"}
    assert {listed[stream] for stream in names.STREAMS} == {"stream"}
    for _ in range(2):
        publisher = await connection.publisher()
        await publisher.publish(Outgoing(b"{}", names.JOBS_EXCHANGE, "default", Properties(priority=10)))
    assert len(await take_all(connection, JOBS, 2)) == 2
    await connection.close()


async def test_a_virtual_host_of_quorum_queues_has_one_leader(by_default: Settings, eventually: Eventually) -> None:
    links = [Link(by_default, f"candidate {number}", SystemClock()) for number in range(3)]
    elections = [Election(link, SystemClock()) for link in links]
    for service in (*links, *elections):
        await service.start()
    await eventually(lambda: any(election.held.is_set() for election in elections))
    connection = await links[0].connection()
    with pytest.raises(AccessRefused):
        await connection.consume(names.LEADER_QUEUE, lambda _: None, prefetch=1, exclusive=True)
    assert sum(election.held.is_set() for election in elections) == 1
    [leader] = [election for election in elections if election.held.is_set()]
    await leader.stop()
    await eventually(lambda: any(each.held.is_set() for each in elections if each is not leader))
    assert sum(election.held.is_set() for election in elections) == 1
    for service in (*elections, *links):
        await service.stop()


@pytest.mark.rabbitmq("it has no quorum queues")
async def test_nobody_leads_by_a_quorum_queue(
    link: Link, settings: Settings, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    """Someone declared `jobs.leader` by hand, as a type that lets two exclusive consumers in."""
    caplog.set_level("INFO", "amqpjobs.scheduler")
    connection = await link.connection()
    await connection.declare_queue(names.LEADER_QUEUE, {"x-queue-type": "quorum"})
    with pytest.raises(PreconditionFailed, match="x-queue-type"):
        await connection.declare_queue(names.LEADER_QUEUE, topology.leader_arguments(connection))
    election = Election(link, SystemClock())
    await election.start()
    await eventually(lambda: "jobs.leader has other arguments" in caplog.text)
    assert not election.held.is_set()
    await connection.delete_queue(names.LEADER_QUEUE)
    await eventually(election.held.is_set)
    await election.stop()
