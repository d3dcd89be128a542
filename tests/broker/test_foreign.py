"""A producer and a worker that know docs/protocol.md and nothing of our code, together with our own processes."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.sync import SyncClient
from tests.broker.programs import Program, Programs, environment
from tests.broker.reading import once, read_all
from tests.conftest import Eventually
from workers import foreign_producer


@pytest.fixture
async def programs(link: Link, settings: Settings) -> Any:
    """Starts programs in a virtual host that has our topology and the queue `default`."""
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_queue(connection, settings, "default")
    programs = Programs()
    yield programs
    programs.end()


Start = Callable[..., Program]


@pytest.fixture
def start(programs: Programs, settings: Settings) -> Start:
    """`start(MODULE or SCRIPT, ARGUMENTS…)`: a program that is pointed at the virtual host, once it is ready."""

    def begin(*arguments: str, ready: str = r"\bready\b") -> Program:
        program = programs.start(*arguments, env=environment(settings))
        if ready:
            program.wait_for(ready)
        return program

    return begin


@pytest.fixture
def plain_channel(programs: Programs, settings: Settings) -> Iterator[BlockingChannel]:
    """pika's channel as it opens: no confirms, as in the specification's samples."""
    connection = pika.BlockingConnection(pika.URLParameters(settings.url))
    yield connection.channel()
    connection.close()


@pytest.fixture
def client(settings: Settings) -> Iterator[SyncClient]:
    with SyncClient(settings) as client:
        yield client


async def entries_of(link: Link, stream: str) -> list[dict[str, Any]]:
    found = once(await read_all(await link.connection(), stream))
    return [entry for entry in found if entry["type"] != "marker"]  # those are of earlier reads


async def metrics_of(link: Link, jid: str) -> list[dict[str, Any]]:
    return [metric for metric in await entries_of(link, names.METRICS) if metric["jid"] == jid]


FOREIGN_WORKER = ("-m", "workers.python.worker")


# Their producer, our worker.


async def test_what_a_foreign_client_enqueues_our_worker_runs(
    start: Start, plain_channel: BlockingChannel, link: Link, eventually: Eventually
) -> None:
    start("-m", "amqpjobs.worker", "-A", "workers.demo", "-q", "default", "-c", "2")
    jid = foreign_producer.enqueue(plain_channel, "SendEmailJob", ["user@example.com", "Hello!"])
    [metric] = await eventually(lambda: metrics_of(link, jid), timeout=20)
    assert (metric["job_class"], metric["queue"], metric["status"]) == ("SendEmailJob", "default", "success")


async def test_what_a_foreign_client_schedules_our_scheduler_releases(
    start: Start, plain_channel: BlockingChannel, link: Link, eventually: Eventually
) -> None:
    start("-m", "amqpjobs.scheduler")
    start("-m", "amqpjobs.worker", "-A", "workers.demo", "-q", "default", "-c", "2")
    due = time.time() + 1.5
    jid = foreign_producer.schedule(plain_channel, "SendReminderJob", [123], due)
    [metric] = await eventually(lambda: metrics_of(link, jid), timeout=20)
    assert metric["status"] == "success"
    assert due <= metric["timestamp"] < due + 5


async def test_the_producers_program_sends_so_many_and_says_so(start: Start, link: Link) -> None:
    producer = start(
        "workers/foreign_producer.py", "--count", "40", "--rate", "200", "--mix", "quick=3,scheduled=1", ready=""
    )
    assert producer.wait() == 0
    assert producer.search(r"sent 40$")
    waiting = await (await link.connection()).passive(names.broker_queue("default"))
    scheduled = await entries_of(link, names.SCHEDULED)
    assert waiting is not None
    assert waiting.ready + len(scheduled) == 40
    assert waiting.ready > 0
    assert scheduled


# Our client, their worker.


async def test_what_our_client_enqueues_a_foreign_worker_runs(
    start: Start, client: SyncClient, link: Link, eventually: Eventually
) -> None:
    worker = start(*FOREIGN_WORKER, "-q", "default")
    jid = client.enqueue("SendEmailJob", kwargs={"address": "ada@example.com"}, tags=["mail"])
    worker.wait_for(f"{jid} SendEmailJob retry_count=0 success")
    [metric] = await eventually(lambda: metrics_of(link, jid))
    assert (metric["status"], metric["attempt"]) == ("success", 1)
    assert metric["wait_ms"] >= 0


async def test_a_foreign_failure_waits_in_retries_and_runs_again(
    start: Start, client: SyncClient, link: Link, eventually: Eventually
) -> None:
    start("-m", "amqpjobs.scheduler")
    worker = start(*FOREIGN_WORKER, "-q", "default")
    jid = client.enqueue("RecoverJob", "token", 2, retry_delays=[0.3, 0.6], meta={"exact": 2**70})
    worker.wait_for(f"{jid} RecoverJob retry_count=2 success")

    async def all_three() -> list[dict[str, Any]] | None:
        found = await metrics_of(link, jid)
        return found if len(found) == 3 else None

    metrics = await eventually(all_three)
    assert [(metric["status"], metric["attempt"]) for metric in metrics] == [
        ("failed", 1),
        ("failed", 2),
        ("success", 3),
    ]
    retries = [entry for entry in await entries_of(link, names.RETRIES) if entry.get("jid") == jid]
    assert [entry["retry_count"] for entry in retries] == [1, 2]
    assert [round(entry["retry_at"] - entry["failed_at"], 3) for entry in retries] == [0.3, 0.6]
    assert all(entry["job"]["meta"] == {"exact": 2**70} for entry in retries)


async def test_a_job_that_fails_for_good_is_dead_with_its_backtrace(
    start: Start, client: SyncClient, link: Link
) -> None:
    worker = start(*FOREIGN_WORKER, "-q", "default")
    jid = client.enqueue("SendEmailJob", "nobody", retry=0)
    worker.wait_for(f"{jid} SendEmailJob retry_count=0 failed: ValueError")
    [dead] = [entry for entry in await entries_of(link, names.DEAD) if entry["jid"] == jid]
    assert (dead["error_class"], dead["retry_count"]) == ("ValueError", 0)
    assert "send_email" in dead["backtrace"]
    assert dead["job"]["args"] == ["nobody"]


async def test_what_is_no_job_is_kept_by_the_foreign_worker_as_it_came(
    start: Start, plain_channel: BlockingChannel, link: Link, eventually: Eventually
) -> None:
    start(*FOREIGN_WORKER, "-q", "default")
    bodies = [b"{", b"[1]", b'{"args": []}', b'{"class": "X", "args": 7}', b"[" * 20_000]
    for body in bodies:
        plain_channel.basic_publish("jobs.direct", "default", body)
    plain_channel.basic_publish("jobs.direct", "default", b"\xff\xfe")

    async def six() -> list[dict[str, Any]] | None:
        found = await entries_of(link, names.DEAD)
        return found if len(found) == 6 else None

    dead = await eventually(six)
    assert {entry["error_class"] for entry in dead} == {"Malformed"}
    assert [entry["raw"].encode() for entry in dead if "raw" in entry] == bodies
    assert [entry["raw_base64"] for entry in dead if "raw_base64" in entry] == ["//4="]


@pytest.mark.parametrize(
    ("retry", "dies"),
    [(False, True), (0, True), ("0", True), (-1, True), (None, False), (True, False), ("x", False), (2.7, False)],
)
async def test_a_foreign_worker_reads_odd_retries_as_the_contract_says(
    start: Start, plain_channel: BlockingChannel, link: Link, retry: object, dies: bool
) -> None:
    worker = start(*FOREIGN_WORKER, "-q", "default")
    job = {"jid": "odd", "class": "Nothing", "args": None, "retry": retry, "retry_count": -3}
    plain_channel.basic_publish("jobs.direct", "default", json.dumps(job))
    worker.wait_for("odd Nothing retry_count=0 failed: UnknownJobClass")
    found = await entries_of(link, names.DEAD if dies else names.RETRIES)
    assert [entry["jid"] for entry in found] == ["odd"]


async def test_a_killed_foreign_worker_loses_no_job(start: Start, client: SyncClient) -> None:
    first = start(*FOREIGN_WORKER, "-q", "default", "-c", "1")
    jid = client.enqueue("SleepJob", 1.0)
    await asyncio.to_thread(_wait_until_taken, client.settings)
    first.send(signal.SIGKILL)
    first.wait()
    assert not first.search(jid)
    second = start(*FOREIGN_WORKER, "-q", "default", "-c", "1")
    second.wait_for(f"{jid} SleepJob retry_count=0 success")


def _wait_until_taken(settings: Settings) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(settings.url))
    channel = connection.channel()
    deadline = time.monotonic() + 20
    while channel.queue_declare("queue.default", passive=True).method.message_count:
        assert time.monotonic() < deadline
        connection.process_data_events(0.02)
    connection.close()


async def test_a_stopped_foreign_worker_finishes_what_runs_and_says_goodbye(
    start: Start, client: SyncClient, link: Link
) -> None:
    worker = start(*FOREIGN_WORKER, "-q", "default", "-c", "1")
    jid = client.enqueue("SleepJob", 1.5)
    await asyncio.to_thread(_wait_until_taken, client.settings)
    assert worker.stop() == 0
    assert worker.search(f"{jid} SleepJob retry_count=0 success")
    beats = await entries_of(link, names.HEARTBEATS)
    assert [beat["state"] for beat in beats] == ["running", "stopping", "stopped"]
    assert [job["jid"] for job in beats[1]["running"]] == [jid]
