"""A queue that collects what a scheduler releases, and a scheduler in this process to release it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from amqpjobs.clock import Clock, SystemClock
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Consumer, Incoming, Outgoing
from tests.broker.reading import once_up


class Bench:
    """A queue that collects what is released, and a hand that publishes to streams as any client may."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.jobs: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.arrived: dict[str, float] = {}
        self.dead: list[dict[str, Any]] = []
        self._consumers: list[Consumer] = []

    async def open(self, queue: str = "default") -> None:
        connection = await self.link.connection()
        await topology.ensure(connection, self.link.settings)
        await topology.ensure_queue(connection, self.link.settings, queue)
        self._consumers = [await connection.consume(names.broker_queue(queue), self._take, prefetch=2000)]
        self._consumers.append(await connection.read(names.DEAD, self._take_dead, start="first"))

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()

    def _take(self, message: Incoming) -> None:
        job = json.loads(message.body)
        self.jobs.append(job)
        self.bodies.append(message.body)
        self.arrived.setdefault(job.get("jid", ""), time.time())
        self._consumers[0].ack(message.tag)

    def _take_dead(self, message: Incoming) -> None:
        found = json.loads(message.body)
        self.dead += [e for e in (found if isinstance(found, list) else [found]) if e.get("type") == "dead_job"]
        self._consumers[1].ack(message.tag)

    async def put(self, stream: str, body: bytes | dict[str, Any]) -> None:
        publisher = await (await self.link.connection()).publisher()
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await publisher.publish(Outgoing(raw, "", stream))
        await publisher.close()

    async def delete(self, stream: str) -> None:
        """RabbitMQ 3.10 may drop the connection over a publish to a stream that is being deleted."""

        async def ask() -> None:
            await (await self.link.connection()).delete_queue(stream)

        await once_up(ask)

    @property
    def counts(self) -> Counter[str]:
        return Counter(job["jid"] for job in self.jobs)


def scheduled(jid: str, due: Any, **job: Any) -> dict[str, Any]:
    inner = {"class": "C", "args": [1], "queue": "default"} | job
    return {"type": "scheduled_job", "jid": jid, "scheduled_at": due, "job": inner}


def failed(jid: str, retry_at: float, count: int = 3) -> dict[str, Any]:
    job = {"class": "C", "args": [], "queue": "default", "jid": jid, "retry_count": count - 1}
    fault = {"error_message": "m", "error_class": "E", "failed_at": time.time()}
    return {"type": "retry", "jid": jid, "retry_at": retry_at, "retry_count": count, "job": job} | fault


@contextlib.asynccontextmanager
async def running(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, clock or SystemClock())
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.stop()


class TurnedClock(SystemClock):
    """A clock whose wall time the test sets; whoever sleeps wakes when it is turned, as if the time had passed."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        """Seconds before (or, negative, behind) the machine's own clock."""
        self._turned = asyncio.Event()

    def wall(self) -> float:
        return super().wall() + self.ahead

    def turn_to(self, moment: float) -> None:
        """From now on it is `moment`, and goes on from there."""
        self.ahead = moment - super().wall()
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._turned.wait()
