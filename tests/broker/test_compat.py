"""`setup --compat`: clients of the specification's samples, which know a queue by its bare name only."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest

from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.errors import Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from amqpjobs.worker import bare_feed
from tests.broker import site
from tests.broker.conftest import Watches, Workers
from tests.broker.programs import Programs
from tests.conftest import Eventually


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def jobs(ran: list[Any]) -> Registry:
    registry = Registry()

    @registry.job(name="C")
    async def note(value: Any) -> None:
        ran.append(value)
        if value == "fail":
            raise RuntimeError("as asked")

    return registry


def publish_as_the_sample_does(settings: Settings, queue: str, *values: Any) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(settings.url))
    channel = connection.channel()
    channel.queue_declare(queue=queue, durable=True)
    channel.confirm_delivery()
    for number, value in enumerate(values):
        job = {"jid": f"b{number}", "class": "C", "args": [value], "queue": queue, "retry": 25, "retry_count": 0}
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", queue, json.dumps(job).encode(), properties, mandatory=True)
    connection.close()


def setup(programs: Programs, settings: Settings, *words: str) -> list[str]:
    program = site.call(programs, "-m", "amqpjobs", "setup", *words, settings=settings)
    assert program.wait() == 0, program.lines
    return program.lines


async def test_jobs_by_the_bare_name_run_and_retry_in_the_proper_queue(
    settings: Settings, programs: Programs, workers: Workers, jobs: Registry, ran: list[Any], watch: Watches,
    eventually: Eventually, link: Link,
) -> None:  # fmt: skip
    lines = setup(programs, settings, "--compat", "default", "critical")
    assert any("queue" in line and " default (jobs for 'default' too)" in line for line in lines)
    assert setup(programs, settings, "--compat", "default", "critical") == lines
    await workers(jobs, queues="default critical")
    retries = await watch(names.RETRIES)
    publish_as_the_sample_does(settings, "default", 1, 2, "fail")
    publish_as_the_sample_does(settings, "critical", 3)
    publisher = await (await link.connection()).publisher()
    await publisher.publish(Outgoing(b'{"class":"C","args":[4]}', names.JOBS_EXCHANGE, "default"))
    await eventually(lambda: len(ran) == 5)
    assert sorted(map(str, ran)) == ["1", "2", "3", "4", "fail"]
    [retry] = await retries.until(1)
    assert retry["job"]["queue"] == "default"
    await workers.stop()
    for queue in ("default", "critical", "queue.default", "queue.critical"):
        state = await (await link.connection()).passive(queue)
        assert state is not None
        assert state.ready == 0


async def test_without_the_mark_a_queue_of_that_name_is_left_alone(
    settings: Settings, workers: Workers, jobs: Registry, ran: list[Any], link: Link, eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Then `setup --compat` is run, and a worker that is there already takes from it within a minute."""
    monkeypatch.setattr(bare_feed, "LOOK_EVERY", 0.3)
    connection = await link.connection()
    await connection.declare_queue("default", {})
    publish_as_the_sample_does(settings, "default", "theirs")
    await workers(jobs)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b'{"class":"C","args":["ours"]}', names.JOBS_EXCHANGE, "default"))
    await eventually(lambda: ran == ["ours"])
    state = await connection.passive("default")
    assert state is not None
    assert (state.ready, state.consumers) == (1, 0)
    assert await topology.ensure_bare_queue(connection, settings, "default") == []
    await eventually(lambda: ran == ["ours", "theirs"])


async def test_a_bare_queue_that_is_deleted_is_declared_again(
    settings: Settings, workers: Workers, jobs: Registry, ran: list[Any], link: Link, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_bare_queue(connection, settings, "default")
    await workers(jobs)

    async def consumed() -> bool:
        state = await connection.passive("default")
        return state is not None and state.consumers == 1

    await eventually(consumed)
    await connection.delete_queue("default")
    await eventually(consumed)
    publish_as_the_sample_does(settings, "default", "again")
    await eventually(lambda: ran == ["again"])


@pytest.mark.parametrize("name", ["retries", "jobs.leader", "queue.default", "a/b"])
async def test_names_that_are_taken_are_refused(name: str, settings: Settings, programs: Programs, link: Link) -> None:
    program = site.call(programs, "-m", "amqpjobs", "setup", "--compat", name, settings=settings)
    assert program.wait() == 1
    assert repr(name) in program.lines[-1]
    publisher = await (await link.connection()).publisher()
    with pytest.raises(Unroutable):
        await publisher.publish(Outgoing(b"{}", "", names.bare_mark(name)))


async def test_setup_sets_the_policies_and_says_what_it_cannot(settings: Settings, programs: Programs) -> None:
    assert not [line for line in setup(programs, settings) if line.startswith("note")]
    unreachable = settings.model_copy(update={"management_url": "http://127.0.0.1:9"})
    notes = [line for line in setup(programs, unreachable) if line.startswith("note")]
    assert len(notes) == 1
    assert "rabbitmqctl set_policy" in notes[0]
