"""A producer that knows docs/protocol.md and nothing of our code, with our own processes (workers: test_languages)."""

from __future__ import annotations

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
from tests.broker.programs import Program, Programs, environment
from tests.broker.reading import once, read_all
from tests.conftest import Eventually
from tests.patience import PATIENCE
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


async def entries_of(link: Link, stream: str) -> list[dict[str, Any]]:
    found = once(await read_all(await link.connection(), stream))
    return [entry for entry in found if entry["type"] != "marker"]  # those are of earlier reads


async def metrics_of(link: Link, jid: str) -> list[dict[str, Any]]:
    return [metric for metric in await entries_of(link, names.METRICS) if metric["jid"] == jid]


# Their producer, our worker.


async def test_what_a_foreign_client_enqueues_our_worker_runs(
    start: Start, plain_channel: BlockingChannel, link: Link, eventually: Eventually
) -> None:
    start("-m", "amqpjobs.worker", "-A", "workers.demo", "-q", "default", "-c", "2")
    jid = foreign_producer.enqueue(plain_channel, "SendEmailJob", ["user@example.com", "Hello!"])
    [metric] = await eventually(lambda: metrics_of(link, jid))
    assert (metric["job_class"], metric["queue"], metric["status"]) == ("SendEmailJob", "default", "success")


async def test_what_a_foreign_client_schedules_our_scheduler_releases(
    start: Start, plain_channel: BlockingChannel, link: Link, eventually: Eventually
) -> None:
    start("-m", "amqpjobs.scheduler")
    start("-m", "amqpjobs.worker", "-A", "workers.demo", "-q", "default", "-c", "2")
    due = time.time() + 1.5
    jid = foreign_producer.schedule(plain_channel, "SendReminderJob", [123], due)
    [metric] = await eventually(lambda: metrics_of(link, jid))
    assert metric["status"] == "success"
    assert due <= metric["timestamp"] < due + PATIENCE


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
