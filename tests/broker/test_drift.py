"""What exists with other arguments, what the user may not do, what is deleted while everything runs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from amqpjobs.client import Client
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from tests.broker import site
from tests.broker.programs import Program, Programs
from tests.broker.reading import entries, read_all
from tests.conftest import Broker, Eventually

STREAMS_READ = (
    names.SCHEDULED,
    names.RETRIES,
    names.DEAD,
    names.HEARTBEATS,
    names.METRICS,
    names.CONTROLS,
    names.AUDIT,
)


def complaints(program: Program) -> list[str]:
    """What it says that is no note of a normal day, and not about a job."""
    return [line for line in program.lines if re.search(r" (WARNING|ERROR|CRITICAL) ", line) and " jid=" not in line]


async def runs(client: Client, program: Program, text: str) -> None:
    """A job that is enqueued now is run by the worker."""
    await client.enqueue("SendEmailJob", f"{text}@example.com", "hello", priority=3)
    await asyncio.to_thread(program.wait_for, f"mail to {text}@example.com")


async def test_drift_is_named_once_in_each_process_and_everything_works(
    settings: Settings, link: Link, broker: Broker, vhost: str, programs: Programs, eventually: Eventually
) -> None:
    """BRK-04."""
    connection = await link.connection()
    other = settings.model_copy(update={"streams": {names.RETRIES: {"max_age": "7D"}}})
    await topology.ensure_stream(connection, other, names.RETRIES)
    await connection.declare_queue("queue.default", topology.classic(connection))
    running = await asyncio.to_thread(site.start, programs, settings)
    async with Client(settings) as client:
        await runs(client, running.worker, "before")

        def cut_off() -> bool:
            broker.close_connections(vhost)
            return all(program.search("lost the connection") for program in (running.worker, running.scheduler))

        await eventually(cut_off)
        await runs(client, running.worker, "after")
        await client.enqueue("NoSuchJob")
    await eventually(lambda: len(running.get("/api/retries").json()) == 1)
    for program, named in ((running.worker, ("retries", "queue.default")), (running.scheduler, ("retries",))):
        about = [line for line in complaints(program) if "with other arguments" in line]
        assert len(about) == len(named), about
        for queue, argument in (("retries", "x-max-age"), ("queue.default", "x-max-priority")):
            assert len([line for line in about if f"{queue} " in line and argument in line]) == (queue in named)
    await eventually(lambda: "x-max-age" in running.get("/job-queues").text)


async def test_a_user_who_may_only_read_and_write_works_on_what_exists(
    settings: Settings, link: Link, broker: Broker, vhost: str, programs: Programs, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_queue(connection, settings, "default")
    with site.user(broker, vhost, f"rw-{vhost}", "secret", configure="") as url:
        limited = settings.model_copy(update={"url": url})
        running = await asyncio.to_thread(site.start, programs, limited)
        async with Client(limited) as client:
            await runs(client, running.worker, "now")
            await client.enqueue("NoSuchJob", jid="fails")
            await client.enqueue_in(2, "SendEmailJob", "later@example.com", "hello")
        await asyncio.to_thread(running.worker.wait_for, "mail to later@example.com")
        await eventually(lambda: len(running.get("/api/retries").json()) == 1)
        await eventually(lambda: running.get("/health/ready").status_code == 200)
        for program in running.programs:
            assert len(complaints(program)) <= 1, complaints(program)
            assert await asyncio.to_thread(program.stop) == 0


async def test_a_worker_without_the_right_to_bind_works_on_what_is_bound(
    settings: Settings, link: Link, broker: Broker, vhost: str, programs: Programs
) -> None:
    """It writes to streams and reads from its queue, and no more."""
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_queue(connection, settings, "default")
    rights = {"configure": "", "write": r"^amq\.default$|^jobs\.direct$", "read": r"^queue\.|^controls$"}
    with site.user(broker, vhost, f"narrow-{vhost}", "secret", **rights) as url:
        limited = settings.model_copy(update={"url": url})
        running = await asyncio.to_thread(site.start, programs, limited, ready=False)
        await asyncio.to_thread(running.worker.wait_for, r"\bready\b")
        async with Client(limited) as client:
            await runs(client, running.worker, "narrow")
        assert len(complaints(running.worker)) <= 1, complaints(running.worker)


# Deleted while everything runs.


class Rehearsal:
    """The whole product, with something that waits in each of the delayed sets."""

    def __init__(self, running: site.Site, client: Client, link: Link, eventually: Eventually) -> None:
        self.running, self.client, self.link, self.eventually = running, client, link, eventually

    async def prepare(self) -> None:
        await self.client.enqueue_in(3600, "SendEmailJob", "far@example.com", "hello", jid="scheduled")
        await self.client.enqueue("NoSuchJob", jid="retried")
        await self.client.enqueue("NoSuchJob", jid="dead", retry=0)
        await self.eventually(self.all_wait)

    def all_wait(self) -> bool:
        return all(
            [row["jid"] for row in self.running.get(path).json()] == [jid]
            for path, jid in (
                ("/api/scheduled-jobs", "scheduled"),
                ("/api/retries", "retried"),
                ("/api/dead-jobs", "dead"),
            )
        )

    def worker_is_listed(self) -> bool:
        return len(self.running.get("/api/processes").json()) == 1

    async def delete(self, stream: str) -> None:
        """Delete it; then it is there again, what waited still waits, and jobs run and are released."""
        connection = await self.link.connection()
        await connection.delete_queue(stream)
        soon = await self.client.enqueue_in(1.5, "SendEmailJob", f"soon-{stream}@example.com", "hello")
        await runs(self.client, self.running.worker, f"now-{stream}")
        await asyncio.to_thread(self.running.worker.wait_for, f"mail to soon-{stream}@example.com")
        if stream in STREAMS_READ:
            await self.eventually(lambda: connection.passive(stream))
        await self.eventually(self.all_wait)
        await self.eventually(self.worker_is_listed)
        await self.eventually(lambda: self.running.get("/health/ready").status_code == 200)
        assert all(program.running for program in self.running.programs)
        assert await self.released(soon)

    async def released(self, jid: str) -> bool:
        found = [entry for message in await read_all(await self.link.connection(), names.METRICS)
                 for entry in entries(message)]  # fmt: skip
        return any(entry.get("jid") == jid and entry.get("status") == "success" for entry in found)


async def test_each_stream_deleted_in_turn_loses_nothing_and_stops_nobody(
    settings: Settings, link: Link, programs: Programs, eventually: Eventually
) -> None:
    """BRK-02: a deleted stream is a new epoch, and what waited in it is appended again."""
    running = await asyncio.to_thread(site.start, programs, settings)
    async with Client(settings) as client:
        rehearsal = Rehearsal(running, client, link, eventually)
        await rehearsal.prepare()
        for stream in names.STREAMS:
            await rehearsal.delete(stream)
        for stream in names.DELAYED:
            first = json.loads((await read_all(await link.connection(), stream))[0].body)
            assert (first if isinstance(first, dict) else first[0])["type"] in ("epoch", "scheduled_job", "marker")
            brought = [each for message in await read_all(await link.connection(), stream) for each in entries(message)]
            assert [each for each in brought if each.get("type") == "again"], stream
    for program in running.programs:
        assert not [line for line in program.lines if "Traceback" in line]
        assert await asyncio.to_thread(program.stop) == 0


@pytest.mark.parametrize("queue", ["queue.default", names.LEADER_QUEUE, names.UNROUTED])
async def test_a_queue_deleted_under_its_consumer_is_declared_again(
    queue: str, settings: Settings, link: Link, programs: Programs, eventually: Eventually
) -> None:
    running = await asyncio.to_thread(site.start, programs, settings)
    connection = await link.connection()

    async def consumed() -> bool:
        state = await connection.passive(queue)
        return state is not None and state.consumers == 1

    await eventually(consumed)
    async with Client(settings) as client:
        for number in range(2):
            await connection.delete_queue(queue)
            await eventually(consumed)
            await runs(client, running.worker, f"again-{number}")
            await client.enqueue_in(1, "SendEmailJob", f"later-{number}@example.com", "hello")
            await asyncio.to_thread(running.worker.wait_for, f"mail to later-{number}@example.com")
        publisher = await connection.publisher()
        stray = {"class": "SendEmailJob", "args": ["stray@example.com", "hello"]}
        await publisher.publish(Outgoing(json.dumps(stray).encode(), names.UNROUTED, "default"))
        await asyncio.to_thread(running.worker.wait_for, "mail to stray@example.com")


# Odd times.


async def test_sch_03_each_odd_time_follows_the_documented_rule(
    settings: Settings, link: Link, programs: Programs, eventually: Eventually
) -> None:
    """SCH-03: the far one waits, a time in milliseconds is one, and nothing fires by accident."""
    running = await asyncio.to_thread(site.start, programs, settings)
    connection = await link.connection()
    publisher = await connection.publisher()
    now = time.time()
    raw: dict[str, str] = {
        "far": repr(now + 25 * 86400),
        "ms": str(int((now + 3600) * 1000)),
        "ms-past": str(int((now - 5) * 1000)),
        "iso": '"2099-01-01T00:00:00Z"',
        "huge": "1e999",
        "nan": "NaN",
        "minus": "-Infinity",
        "true": "true",
        "digits": '"1800000000"',
        "soon": '"soon"',
        "null": "null",
        "list": "[1]",
    }
    for jid, due in raw.items():
        job = f'{{"class": "SendEmailJob", "args": ["{jid}@example.com", "hello"], "queue": "default"}}'
        body = f'{{"type": "scheduled_job", "jid": "{jid}", "scheduled_at": {due}, "job": {job}}}'
        await publisher.publish(Outgoing(body.encode(), "", names.SCHEDULED))
    dead = {"huge", "nan", "minus", "true", "digits", "soon", "null", "list"}
    listed: Any = None

    def settled() -> bool:
        nonlocal listed
        listed = running.get("/api/dead-jobs").json()
        return {row["jid"] for row in listed} == dead

    await eventually(settled)
    waiting = running.get("/api/scheduled-jobs").json()
    told = {row["jid"]: row["scheduled_at"] for row in waiting}
    assert round(told.pop("far")) == round(now + 25 * 86400)
    assert told == {"ms": int((now + 3600) * 1000), "iso": "2099-01-01T00:00:00Z"}  # as they came
    assert {row["error_class"] for row in listed} == {"Malformed"}
    assert running.get("/job-queues").status_code == 200
    await asyncio.to_thread(running.worker.wait_for, "mail to ms-past@example.com")
    mails = [line for line in running.worker.lines if "mail to" in line]
    assert len(mails) == 1, mails
