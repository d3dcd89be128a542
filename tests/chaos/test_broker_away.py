"""BRK-01: the broker goes away and comes back; everything resumes by itself, within 15 s (printed: -s shows it)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs import Client
from tests.chaos.site import Site

Eventually = Callable[..., Awaitable[Any]]
RESUMED = 3 * 15.0
"""Seconds: what BRK-01 asks for, on a machine three times slower than any that it has in mind."""
AWAY = 30.0


@pytest.mark.timeout(400)
async def test_everything_resumes_after_the_broker_was_away(tmp_path: Path, eventually: Eventually) -> None:
    site = Site(tmp_path)
    async with site.up(), Client(site.settings) as client:
        await _lives(site, client, eventually, "before", time.monotonic())
        before = {process["identity"] for process in await site.get("/api/processes")}
        for number, away in enumerate((AWAY, 0.0, 0.0)):
            await site.node.stop()
            await _page_says_so(site, eventually)
            await asyncio.sleep(away)  # the outage itself
            await site.node.start()
            await _lives(site, client, eventually, f"outage {number}", time.monotonic())
        await site.close_connections()
        await _lives(site, client, eventually, "closed", time.monotonic())
        assert {process["identity"] for process in await site.get("/api/processes")} == before
        assert all(program.running for program in site.running.values()), "nobody had to be started again"
        assert set(site.done().values()) == {1}


async def _page_says_so(site: Site, eventually: Eventually) -> None:
    async def says() -> bool:
        status = await site.get("/api/job-queues")
        return not status["broker"]["connected"]

    await eventually(says, timeout=RESUMED)


async def _lives(site: Site, client: Client, eventually: Eventually, name: str, since: float) -> None:
    """A job runs, a scheduled one runs, and the page knows both and the processes' heartbeats of now."""
    left = RESUMED - (time.monotonic() - since)
    async with asyncio.timeout(left):
        sent = [
            await client.enqueue("quick"),
            await client.enqueue_in(0.5, "quick"),
            await client.enqueue("recovers", 1, retry_delays=[0.5]),
        ]
    started = time.time()
    await eventually(lambda: all(site.done()[jid] for jid in sent), timeout=RESUMED - (time.monotonic() - since))

    async def fresh() -> bool:
        status = await site.get("/api/job-queues")
        return bool(status["broker"]["connected"]) and status["active_processes"] == 2

    await eventually(fresh, timeout=RESUMED - (time.monotonic() - since))

    async def beats() -> bool:
        processes = await site.get("/api/processes")
        return len(processes) == 2 and all(process["beat"] > started - 1 for process in processes)

    await eventually(beats, timeout=RESUMED - (time.monotonic() - since))
    print(f"{name}: all of it within {time.monotonic() - since:.1f} s")
