"""Jobs that a broker takes and their records would not: nothing of them is lost, and they come back and run."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from amqpjobs import Fail
from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import control, names, outcomes
from amqpjobs.model.protocol import Command, Op, Target
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import TooLarge
from amqpjobs.streams.limits import SINCE_4
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Outgoing, Properties
from amqpjobs.streams.rows import Row
from tests.broker.conftest import Watches, Workers
from tests.broker.reading import read_all, take_all
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]

LIMIT = 100_000


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As on a broker that takes no more than so much, told as a person tells it."""
    monkeypatch.setenv("AMQPJOBS_MAX_MESSAGE_BYTES", str(LIMIT))
    return Settings(url=settings.url, management_url=settings.management_url, state_dir=settings.state_dir)


@pytest.fixture
def jobs() -> Registry:
    return Registry()


@pytest.fixture
async def scheduler(settings: Settings) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    yield scheduler
    await scheduler.stop()


def sized(size: int, **more: Any) -> bytes:
    """The JSON of a job of so many bytes, with digits that only an exact copy keeps."""
    job = {"jid": "big", "class": "grows", "queue": "default", "retry_delays": [0.1], **more}
    head = json.dumps(job)[:-1].encode() + b',"args":[1.10,"'
    return head + b"x" * (size - len(head) - 3) + b'"]}'


async def enqueue(link: Link, body: bytes) -> None:
    publisher = await (await link.connection()).publisher()
    await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, "default"))
    await publisher.close()


def parting(found: bytes, wanted: bytes) -> tuple[int, bytes, bytes] | None:
    """Where two bodies part and what follows there; None when they are the same.

    Of bodies so large pytest would print a diff on a CI machine, which it once took five minutes to make.
    """
    if found == wanted:
        return None
    at = next((n for n, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), len(wanted))
    return at, found[at : at + 20], wanted[at : at + 20]


def view_of(scheduler: Scheduler, stream: str) -> Any:
    return next(leader for leader in scheduler.leaders if leader.view.stream == stream)


async def rows(scheduler: Scheduler, stream: str) -> list[Row]:
    """The whole entries: a page holds no more than a part of each."""
    leader = view_of(scheduler, stream)

    def whole() -> list[Row]:
        jids = dict.fromkeys(row.jid for row in leader.view.page(10))
        return [row for jid in jids for row in leader.view.find(jid)]

    found: list[Row] = await leader.follower.query(whole)
    return found


async def unwrapped_in(link: Link, stream: str) -> list[Incoming]:
    found = await read_all(await link.connection(), stream)
    return [message for message in found if "amqpjobs-type" in message.properties.headers]


async def test_a_retry_of_a_job_that_fills_a_message_comes_back_and_runs(
    jobs: Registry, workers: Workers, link: Link, scheduler: Scheduler, watch: Watches
) -> None:
    ran: list[tuple[float, int]] = []

    @jobs.job
    def grows(number: float, pad: str) -> None:
        ran.append((number, len(pad)))
        if len(ran) < 3:
            raise OSError("b" * 50_000)

    metrics = await watch(names.METRICS)
    await workers(jobs)
    body = sized(LIMIT - 300)
    await enqueue(link, body)
    statuses = [metric["status"] for metric in await metrics.until(3)]
    assert statuses == ["failed", "failed", "success"]
    first, second = await unwrapped_in(link, names.RETRIES)
    assert parting(first.body, body) is None
    assert first.properties.headers["amqpjobs-type"] == "retry"
    assert (first.properties.headers["amqpjobs-retry-count"], second.properties.headers["amqpjobs-retry-count"]) == (
        1,
        2,
    )
    assert b'"args":[1.10,' in second.body
    assert await workers.left() == 0
    assert len(set(ran)) == 1


async def test_words_are_cut_before_a_job_is_taken_apart(
    jobs: Registry, workers: Workers, link: Link, watch: Watches
) -> None:
    @jobs.job
    def grows(*_: Any) -> None:
        raise Fail("m" * 200_000)

    dead = await watch(names.DEAD)
    await workers(jobs)
    await enqueue(link, sized(1000))
    [entry] = await dead.until(1)
    assert entry["job"]["jid"] == "big"
    assert entry["error_message"].endswith(outcomes.CUT)
    [message] = await read_all(await link.connection(), names.DEAD)
    assert 0.8 * LIMIT < len(message.body) <= LIMIT
    assert await unwrapped_in(link, names.DEAD) == []


async def test_a_dead_one_is_listed_and_can_be_retried(
    jobs: Registry, workers: Workers, link: Link, scheduler: Scheduler, watch: Watches, eventually: Eventually
) -> None:
    ran: list[int] = []

    @jobs.job
    def grows(number: float, pad: str) -> None:
        ran.append(len(pad))
        if len(ran) == 1:
            raise Fail("for good")

    metrics = await watch(names.METRICS)
    await workers(jobs)
    await enqueue(link, sized(LIMIT - 300, tags=["t"]))
    await metrics.until(1)

    async def listed() -> list[Row]:
        return await rows(scheduler, names.DEAD)

    [row] = await eventually(listed)
    assert (row.jid, row.cls, row.error_class, row.error_message, row.tags) == (
        "big",
        "grows",
        "Fail",
        "for good",
        ["t"],
    )
    command = Command("u", Op.TRIGGER, (Target("big", row.entry),), at=1.0, by="ann")
    appender = Appender(link, names.DEAD, clock=SystemClock())
    await appender.append([json.dumps(control.write_command(command)).encode()], timeout=PATIENCE)
    await appender.close()
    assert [metric["status"] for metric in await metrics.until(2)] == ["failed", "success"]
    await eventually(lambda: ran and ran[0] == ran[-1])

    async def gone() -> bool:
        return await rows(scheduler, names.DEAD) == []

    await eventually(gone)


async def test_garbage_of_that_size_is_kept_to_the_byte(
    jobs: Registry, workers: Workers, link: Link, scheduler: Scheduler, watch: Watches, eventually: Eventually
) -> None:
    garbage = b"\n " + random.Random(7).randbytes(LIMIT - 204) + b"\n "
    metrics = await watch(names.METRICS)
    jobs.job(name="X")(lambda: None)
    await workers(jobs)
    await enqueue(link, garbage)
    await metrics.until(1)
    [message] = await unwrapped_in(link, names.DEAD)
    assert parting(message.body, garbage) is None

    async def listed() -> list[Row]:
        return await rows(scheduler, names.DEAD)

    [row] = await eventually(listed)
    assert (row.error_class, row.queue) == ("Malformed", "default")
    assert await workers.left() == 0


async def test_a_scheduled_one_waits_and_leaves_and_what_cannot_leave_is_buried(
    settings: Settings, link: Link, scheduler: Scheduler, eventually: Eventually
) -> None:
    async with Client(settings) as client:
        jid = await client.enqueue_in(0.5, "X", "x" * (LIMIT - 500))
        with pytest.raises(TooLarge):
            await client.enqueue_in(0.5, "X", "x" * LIMIT)
        with pytest.raises(TooLarge):
            await client.enqueue("X", "x" * LIMIT)
    body = sized(LIMIT - 10)  # a release adds `enqueued_at` and more, and then it fits no message
    publisher = await (await link.connection()).publisher()
    headers = {"amqpjobs-type": "scheduled_job", "amqpjobs-jid": "tight", "amqpjobs-scheduled-at": "5"}
    await publisher.publish(Outgoing(body, "", names.SCHEDULED, Properties(headers=headers)))
    await publisher.close()

    async def buried() -> list[Row]:
        return await rows(scheduler, names.DEAD)

    [row] = await eventually(buried)
    assert (row.jid, row.error_class) == ("tight", "TooLarge")
    [record] = await unwrapped_in(link, names.DEAD)
    assert parting(record.body, body) is None
    [released] = await take_all(await link.connection(), "queue.default", 1)
    assert json.loads(released.body)["jid"] == jid

    async def settled() -> bool:
        return await rows(scheduler, names.SCHEDULED) == []

    await eventually(settled)


async def test_a_burial_and_an_earlier_lifes_entry_fit_as_well(
    settings: Settings, link: Link, scheduler: Scheduler, eventually: Eventually
) -> None:
    async with Client(settings) as client:
        jid = await client.enqueue_in(3600, "X", "x" * (LIMIT - 250))
    await eventually(lambda: scheduler.leading)

    async def waiting() -> list[Row]:
        return await rows(scheduler, names.SCHEDULED)

    [before] = await eventually(waiting)
    connection = await link.connection()
    await connection.delete_queue(names.SCHEDULED)

    async def again() -> list[Row]:
        return [row for row in await waiting() if "/" in row.entry]

    [after] = await eventually(again)
    assert (after.jid, after.due, after.cls) == (jid, before.due, "X")
    assert json.loads(after.raw) == json.loads(before.raw)
    kill = Command("u", Op.KILL, (Target(jid, after.entry),), at=1.0, by="ann")
    appender = Appender(link, names.SCHEDULED, clock=SystemClock())
    await appender.append([json.dumps(control.write_command(kill)).encode()], timeout=PATIENCE)
    await appender.close()

    async def buried() -> list[Row]:
        return await rows(scheduler, names.DEAD)

    [row] = await eventually(buried)
    assert (row.jid, row.cls, row.error_class) == (jid, "X", "Killed")
    [message] = await unwrapped_in(link, names.DEAD)
    assert len(message.body) > LIMIT - 250


async def test_a_full_sized_job_is_retried_on_any_broker(
    jobs: Registry,
    workers: Workers,
    link: Link,
    watch: Watches,
    settings: Settings,
) -> None:
    """15.9 MB, to the limit of RabbitMQ since 4.0, whatever this broker takes."""
    full = settings.model_copy(update={"max_message_bytes": SINCE_4})
    ran: list[int] = []

    @jobs.job
    def grows(number: float, pad: str) -> None:
        ran.append(len(pad))
        if len(ran) == 1:
            raise OSError("b" * 2_000_000)

    metrics = await watch(names.METRICS, full)
    scheduler = Scheduler(full, SystemClock())
    await scheduler.start()
    try:
        await workers(jobs, target=full)
        await enqueue(link, sized(SINCE_4 - 300))
        assert [metric["status"] for metric in await metrics.until(2)] == ["failed", "success"]
    finally:
        await scheduler.stop()
    assert len(ran) == 2
    assert ran[0] == ran[1] > 15_900_000
