"""What the clients do to jobs that wait, and the verdicts that they get."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.model import control, names
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.epoch import first_from
from amqpjobs.streams.link import Link
from amqpjobs.sync import SyncClient
from tests.broker.bench import Bench, failed, running, scheduled
from tests.broker.test_actions import dead
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]
FAR = 4e9


async def put(bench: Bench, stream: str, *found: dict[str, Any]) -> None:
    await bench.put(stream, json.dumps(found).encode())


async def test_one_or_many_jobs_and_what_became_of_each(
    settings: Settings, bench: Bench, client: Client, eventually: Eventually
) -> None:
    await put(bench, names.SCHEDULED, *(scheduled(jid, FAR) for jid in ("s1", "s2", "s3", "both")))
    await put(bench, names.RETRIES, *(failed(jid, FAR) for jid in ("r1", "r2", "both")))
    await put(bench, names.DEAD, dead("d1"), dead("d2"))
    assert await client.delete("s1", "r2", "none") == {"s1": "done", "r2": "done", "none": "not_found"}
    assert await client.delete("s1") == {"s1": "not_found"}
    assert await client.restore("s1") == {"s1": "done"}
    assert await client.restore("s1") == {"s1": "not_found"}, "one deletion is undone once"
    with pytest.raises(ValueError, match="both is in scheduled and in retries: say which with where="):
        await client.delete("s2", "both")
    assert await client.delete("both", where="retries") == {"both": "done"}
    assert await client.reschedule("both", "s2", at=time.time() - 1) == {"both": "done", "s2": "done"}
    assert await client.trigger("s1", "d1") == {"s1": "done", "d1": "not_found"}
    assert await client.retry("r1") == {"r1": "done"}
    assert await client.requeue("d1", "d1") == {"d1": "done"}
    assert await client.kill("s3") == {"s3": "not_found"}, "only what failed can be killed"
    async with running(settings):
        await eventually(lambda: len(bench.jobs) == 5)
    assert set(bench.counts) == {"both", "s2", "s1", "r1", "d1"}


async def test_a_failed_job_is_killed_from_many_threads_and_the_record_says_who(
    settings: Settings, bench: Bench, eventually: Eventually
) -> None:
    await put(bench, names.RETRIES, *(failed(f"r{n}", FAR) for n in range(12)))
    loop, client = asyncio.get_running_loop(), SyncClient(settings)
    with ThreadPoolExecutor(4) as threads:
        calls = [loop.run_in_executor(threads, client.kill, *(f"r{3 * n + k}" for k in range(3))) for n in range(4)]
        found = [await call for call in calls]
        again = await loop.run_in_executor(threads, client.delete, "none")
        await loop.run_in_executor(threads, client.close)
    assert {jid: verdict for each in found for jid, verdict in each.items()} == {f"r{n}": "done" for n in range(12)}
    assert again == {"none": "not_found"}
    async with running(settings):
        await eventually(lambda: len(bench.dead) == 12)
    assert not bench.jobs


async def test_what_is_claimed_is_a_conflict(bench: Bench, client: Client, link: Link) -> None:
    """The test leads by hand: it claims, and does not settle."""
    await put(bench, names.SCHEDULED, scheduled("claimed", FAR), scheduled("free", FAR))
    first = str(await first_from(await link.connection(), names.SCHEDULED, 0, PATIENCE))  # LavinMQ counts from 1
    leader = Appender(link, names.SCHEDULED, clock=SystemClock())
    for entry in (
        control.write_epoch("E", at=1.0),
        control.write_term("E", 7, by="test", at=1.0),
        control.write_claimed("E", 7, [first]),
    ):
        await leader.append([json.dumps(entry).encode()])
    await leader.close()
    assert await client.act("delete", ["claimed", "free"], by="ann") == {"claimed": "conflict", "free": "done"}


@pytest.mark.parametrize(
    ("word", "more", "says"),
    [
        ("vanish", {}, "is no action"),
        ("kill", {"where": "dead"}, "only in retries"),
        ("delete", {"where": "queue"}, "only in scheduled, retries, dead"),
        ("reschedule", {}, "takes the time"),
        ("reschedule", {"at": float("nan")}, "is no time"),
    ],
)
async def test_what_has_no_meaning_is_refused_at_once(
    bench: Bench, client: Client, word: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        await client.act(word, ["j"], **more)
