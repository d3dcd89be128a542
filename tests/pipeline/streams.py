"""Filling streams, for tests that are not asynchronous (Spark is not)."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.pipeline.reading import ask, messages
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges, topology
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import Nacked, Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Batch, Connection, Outgoing

T = TypeVar("T")
STREAM = {"x-queue-type": "stream"}
NOON = 1_767_268_800.0
"""2026-01-01 12:00:00 UTC."""


def on(settings: Settings, do: Callable[[Connection], Awaitable[T]]) -> T:
    return ask(settings, do)


def declare(settings: Settings) -> None:
    ask(settings, lambda connection: topology.ensure(connection, settings))


def append(settings: Settings, stream: str, entries: Iterable[Any]) -> None:
    """Each entry (a value, or bytes) as a message, in this order, confirmed."""
    bodies = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in entries]

    async def publish(connection: Connection) -> None:
        publisher = await connection.publisher()
        for chunk in (bodies[at : at + 2000] for at in range(0, len(bodies), 2000)):
            batch = Batch([Outgoing(body, "", stream) for body in chunk])
            await publisher.publish_many(batch)
            while batch.failed:  # just after its start a broker returns what is for a stream
                assert all(isinstance(error, Unroutable | Nacked) for error in batch.failed.values()), batch.failed
                await asyncio.sleep(0.2)
                batch = Batch([batch.messages[index] for index in sorted(batch.failed)])
                await publisher.publish_many(batch)

    ask(settings, publish)


def append_once(settings: Settings, stream: str, entries: Iterable[Any]) -> None:
    """Each entry (a value, or several in a list) as a numbered message, as the product appends: sent again until the
    broker has confirmed it, under its number."""

    async def publish() -> None:
        link = Link(settings, "test appends", SystemClock())
        await link.start()
        appender = Appender(link, stream, clock=SystemClock())
        for entry in entries:
            several = entry if isinstance(entry, list) else [entry]
            await appender.append([json.dumps(each).encode() for each in several])
        await appender.close()
        await link.stop()

    asyncio.run(publish())


def entries(settings: Settings, stream: str) -> list[Any]:
    """All that a stream holds, arrays taken apart."""
    found = ask(settings, lambda connection: ranges.following(connection, stream, None, 10**9))
    assert found is not None
    values = [json.loads(message.body) for batch in messages(settings, found, skip=False) for message in batch]
    return [entry for each in values for entry in (each if isinstance(each, list) else [each])]


def metric(number: int, **members: Any) -> dict[str, Any]:
    """A run of a job; `number` tells it from others."""
    return {
        "type": "job_metric",
        "timestamp": NOON + number % 7200,
        "jid": f"{number:024x}",
        "job_class": f"Class{number % 5}",
        "queue": "default" if number % 3 else "low",
        "duration_ms": float(1 + number % 1000),
        "status": "failed" if number % 10 == 0 else "success",
        "worker_identity": f"host:{number % 4}:test",
        "attempt": 1 + (number % 7 == 0),
        "wait_ms": 0.5 * (number % 40),
        **members,
    }


def mixed(entries: Sequence[Any], seed: int = 1) -> list[Any]:
    """The same entries as messages: some alone, some in arrays of up to 50."""
    rng, iterator, messages = random.Random(seed), iter(entries), []
    while chunk := list(itertools.islice(iterator, rng.choice((1, 1, 2, 10, 50)))):
        messages.append(chunk[0] if len(chunk) == 1 else chunk)
    return messages


def recreate(settings: Settings, stream: str = names.METRICS) -> None:
    async def anew(connection: Connection) -> None:
        await connection.delete_queue(stream)
        await topology.ensure(connection, settings)

    ask(settings, anew)
