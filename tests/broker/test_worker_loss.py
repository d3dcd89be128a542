"""A worker that loses what it stands on: the right to write, a stream, its connections, the whole broker."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from tests.broker.conftest import Watches, Workers
from tests.broker.nodes import block, unblock
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
def jobs() -> Registry:
    return Registry()


def permit(broker: Any, vhost: str, write: str) -> None:
    """Change what the user may write; RabbitMQ looks again for each new channel at the latest."""
    rights = {"configure": ".*", "write": write, "read": ".*"}
    with broker.api() as api:
        api.put(f"/permissions/{vhost}/{broker.credentials[0]}", json=rights).raise_for_status()


async def test_dur_06_a_failure_is_not_acknowledged_until_its_retry_is_recorded(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, broker: Any, vhost: str, eventually: Eventually
) -> None:
    """The default exchange is denied while a job fails: nothing can be recorded, nothing is acknowledged."""
    ran: list[str] = []

    @jobs.job
    def fails(which: str) -> None:
        ran.append(which)
        raise OSError(which)

    retries, metrics = await watch(names.RETRIES), await watch(names.METRICS)
    worker = await workers(jobs, concurrency=2)
    permit(broker, vhost, write="^(jobs\\..*|queue\\..*)$")
    for n in range(10):
        await client.enqueue("fails", str(n), jid=f"j{n}")
    await eventually(lambda: worker.state.startswith("paused: "))
    await eventually(lambda: worker._recorder.waiting == 4)
    assert len(ran) <= 5, "no more than twice the concurrency may wait for their records (one slot had passed the gate)"
    if not broker.lavinmq:  # which drops what may not be written to a queue without a word, and confirms nothing
        assert "refused" in worker.state.lower() or "access" in worker.state.lower()
    assert retries.entries == []
    permit(broker, vhost, write=".*")
    found = await retries.until(10)
    await metrics.until(10)
    assert sorted(entry["jid"] for entry in found) == sorted(f"j{n}" for n in range(10))
    await eventually(lambda: worker.state == "running")
    assert await workers.left() == 0
    assert sorted(ran) == sorted(str(n) for n in range(10)), "each ran once: the outcome was kept, not made again"


async def test_dur_06_unrecorded_jobs_are_still_the_brokers(
    jobs: Registry, client: Client, workers: Workers, broker: Any, vhost: str, eventually: Eventually
) -> None:
    """A worker that ends while it cannot record gives every such job back."""

    @jobs.job
    def fails() -> None:
        raise OSError("no")

    worker = await workers(jobs, concurrency=2)
    permit(broker, vhost, write="^(jobs\\..*|queue\\..*)$")
    await client.enqueue("fails")
    await eventually(lambda: worker._recorder.waiting == 1)
    assert await workers.left() == 1


async def test_dur_06_a_deleted_retries_stream_is_made_again_and_the_failure_ends_there(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, link: Link, eventually: Eventually
) -> None:
    release = threading.Event()
    running = threading.Event()

    @jobs.job
    def fails() -> None:
        running.set()
        release.wait(PATIENCE)
        raise OSError("no")

    await workers(jobs)
    jid = await client.enqueue("fails")
    await asyncio.to_thread(running.wait, PATIENCE)
    connection = await link.connection()
    await connection.delete_queue(names.RETRIES)
    release.set()

    async def made_again() -> bool:
        return await connection.passive(names.RETRIES) is not None

    await eventually(made_again)
    retries = await watch(names.RETRIES)
    [entry] = await retries.until(1)
    assert entry["jid"] == jid
    assert await workers.left() == 0


async def test_a_connection_closed_by_force_runs_nothing_twice_and_loses_nothing(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, broker: Any, vhost: str, eventually: Eventually
) -> None:
    """Running jobs adopt their redelivered copies; unstarted ones run after them; failures are recorded once."""
    runs: collections.Counter[int] = collections.Counter()
    release = asyncio.Event()

    @jobs.job
    async def held(n: int) -> None:
        runs[n] += 1
        await release.wait()
        if n % 2:
            raise OSError(f"{n}")

    metrics, retries = await watch(names.METRICS), await watch(names.RETRIES)
    worker = await workers(jobs, concurrency=4)
    for n in range(12):
        await client.enqueue("held", n, jid=f"j{n}")
    await eventually(lambda: worker.busy == 4)
    name = f"worker {worker.identity.name}"

    async def closed() -> int:
        return await asyncio.to_thread(broker.close_connections, vhost, named=name)

    await eventually(closed)  # the management API learns of connections with a delay
    await eventually(lambda: worker._fetcher.buffered == 4)
    release.set()
    await metrics.until(12)
    await retries.until(6)
    assert await workers.left() == 0
    assert runs == collections.Counter(range(12))
    assert len(metrics.entries) == 12
    assert sorted(entry["jid"] for entry in retries.entries) == sorted(f"j{n}" for n in range(1, 12, 2))


async def test_brk_01_a_restarted_broker_is_used_again_within_seconds(
    jobs: Registry, node: PrivateNode, tmp_path: Path, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    """Three restarts: a job that runs across one is settled, what was waiting runs, heartbeats go on, all by itself."""
    settings = Settings(url=node.url, state_dir=tmp_path, publish_timeout=60)
    runs: collections.Counter[str] = collections.Counter()
    release = asyncio.Event()

    @jobs.job
    async def held(which: str) -> None:
        runs[which] += 1
        await release.wait()

    @jobs.job
    def quick(which: str) -> None:
        runs[which] += 1

    worker = await workers(jobs, target=settings, concurrency=3)
    async with Client(settings) as client:
        for turn in range(3):
            release.clear()
            await client.enqueue("held", f"held {turn}")
            await eventually(lambda: worker.busy == 1)
            await node.stop()
            enqueuing = asyncio.create_task(client.enqueue("quick", f"quick {turn}"))
            await node.start()
            await enqueuing
            await eventually(lambda turn=turn: runs[f"quick {turn}"] == 1)
            release.set()
            await eventually(lambda: worker.busy == 0 and worker._recorder.waiting == 0)
    metrics = await watch(names.METRICS, settings)
    beats = await watch(names.HEARTBEATS, settings)
    await metrics.until(6)
    assert set(runs) == {f"{kind} {turn}" for kind in ("held", "quick") for turn in range(3)}
    assert max(runs.values()) == 1, "a job that ran through a restart was adopted, not run again"
    before = len(beats.entries)
    await worker.quiet()
    await beats.until(before + 1)
    await worker.stop()


async def test_a_blocked_broker_pauses_the_worker_and_loses_no_result(
    jobs: Registry, node: PrivateNode, tmp_path: Path, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    settings = Settings(url=node.url, state_dir=tmp_path)
    runs: list[int] = []
    running = asyncio.Event()
    release = asyncio.Event()

    @jobs.job
    async def held(n: int) -> None:
        running.set()
        await release.wait()
        runs.append(n)

    metrics = await watch(names.METRICS, settings)
    worker = await workers(jobs, target=settings, concurrency=1)
    async with Client(settings) as client:
        for n in range(6):
            await client.enqueue("held", n)
    await asyncio.wait_for(running.wait(), PATIENCE)
    await block(node)
    release.set()
    await eventually(lambda: worker.state.startswith("paused: "))
    assert len(runs) <= 3
    await unblock(node)
    await metrics.until(6)
    await eventually(lambda: worker.state == "running")
    assert runs == list(range(6))
    assert len(metrics.entries) == 6
    await worker.stop()


async def test_a_worker_without_a_broker_says_so_at_once(jobs: Registry, tmp_path: Path, workers: Workers) -> None:
    from amqpjobs.streams.errors import BrokerError

    away = Settings(url="amqp://guest:secret@127.0.0.1:9/", state_dir=tmp_path)
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:9") as caught:
        await workers(jobs, target=away)
    assert "secret" not in str(caught.value)


async def test_a_part_that_ends_by_an_error_is_noticed(
    jobs: Registry, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await workers(jobs)
    noticed = asyncio.create_task(worker.failure())

    def faulty() -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(worker._heartbeat, "_entry", faulty)
    worker._heartbeat.changed()
    assert isinstance(await asyncio.wait_for(noticed, PATIENCE), ZeroDivisionError)
