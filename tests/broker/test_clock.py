"""Clocks that are set back or forward, and hosts that differ: no job leaves twice, none stops, no time is negative."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest

from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan
from tests.broker.bench import Bench, TurnedClock, failed, running, scheduled
from tests.broker.conftest import Watches
from tests.web.conftest import Dashboard, serving

Eventually = Callable[..., Awaitable[Any]]
HOUR = 3600.0
FIVE_MINUTES = 300.0


async def idle(scheduler: Scheduler) -> bool:
    """Whether nothing is claimed and not settled."""
    leaders = scheduler.leaders[:2]
    for each in leaders:
        if await each.follower.query(partial(each.view.store.claimed, 1)):
            return False
    return True


@pytest.mark.parametrize("turns", [(-HOUR, HOUR), (HOUR, -HOUR)], ids=["back, then forward", "forward, then back"])
async def test_sch_04_a_clock_set_by_an_hour_runs_nothing_twice_and_stops_nothing(
    settings: Settings, link: Link, watch: Watches, eventually: Eventually, turns: tuple[float, float]
) -> None:
    """Scheduler, worker and dashboard of one host, with jobs pending and one running."""
    clock, jobs, ran, go_on = TurnedClock(), Registry(), Counter[str](), asyncio.Event()

    @jobs.job
    def note(what: str) -> None:
        ran[what] += 1

    @jobs.job
    async def long() -> None:
        await go_on.wait()
        ran["long"] += 1

    start = clock.wall()
    metrics = await watch(names.METRICS)
    worker = Launcher(settings, Plan(queues=[QueueShare("default")]), jobs=jobs, clock=clock)
    async with running(settings, clock) as scheduler, Client(settings, clock=clock) as client:
        await worker.start()
        try:
            await client.enqueue("long")
            await client.enqueue_in(0, "note", "first")
            await client.enqueue_in(HOUR / 2, "note", "half an hour")
            await client.enqueue_in(3 * HOUR, "note", "three hours")
            await eventually(lambda: ran["first"] and worker.busy)
            for number, turn in enumerate(turns):
                clock.turn_to(clock.wall() + turn)
                await client.enqueue_in(0.2, "note", f"turn {number}")
                await client.enqueue("note", f"now {number}")
                await eventually(lambda number=number: ran[f"turn {number}"] and ran[f"now {number}"])
            go_on.set()
            await eventually(lambda: ran["long"])
            clock.turn_to(start + 2 * HOUR)
            await eventually(lambda: ran["half an hour"])
            async with serving(settings, clock) as dashboard:
                figures = await eventually(lambda: _counted(dashboard))
            assert figures["queues"]["default"]["latest_wait_ms"] >= 0
            clock.turn_to(start + 3 * HOUR)
            await eventually(lambda: ran["three hours"])
            await eventually(lambda: idle(scheduler))
        finally:
            await worker.stop()
    assert set(ran.values()) == {1}
    entries = await metrics.until(len(ran))
    assert len(entries) == len(ran)
    for entry in entries:
        assert entry["duration_ms"] >= 0
        assert entry.get("wait_ms", 0) >= 0


async def _counted(dashboard: Dashboard) -> dict[str, Any] | None:
    """What the dashboard shows, once it knows of the one job that waits."""
    with suppress(httpx.TransportError):
        figures = await dashboard.figures()
        return figures if figures["scheduled_count"] == 1 else None
    return None


@pytest.mark.parametrize("ahead", [FIVE_MINUTES, -FIVE_MINUTES], ids=["ahead", "behind"])
async def test_a_standby_whose_clock_differs_takes_over_and_repeats_nothing(
    settings: Settings, bench: Bench, eventually: Eventually, ahead: float
) -> None:
    """What left under the first leader's clock is over, whatever the second one's says; what is pending leaves by
    the second's."""
    first_clock, second_clock = TurnedClock(), TurnedClock(ahead)
    every = {"class": "R", "args": []}
    declared = {"type": "recurring", "op": "declare", "name": "minute", "every": 60, "job": every}
    async with running(settings, first_clock) as first:
        await eventually(lambda: first.leading)
        now = first_clock.wall()
        await bench.put(names.CONTROLS, declared | {"at": now})
        for number in range(20):
            await bench.put(names.SCHEDULED, scheduled(f"before {number}", now))
            await bench.put(names.SCHEDULED, scheduled(f"after {number}", now + 600))
        await bench.put(names.RETRIES, failed("retry", now))
        await eventually(lambda: len(bench.jobs) >= 21)
        first_clock.turn_to(now + 61)
        await eventually(lambda: len(bench.jobs) >= 22)  # the recurring one
        async with running(settings, second_clock) as second:
            await first.stop()
            await eventually(lambda: second.leading)
            term = second.leaders[0].view.facts().term
            await bench.put(names.SCHEDULED, scheduled("due by its clock", second_clock.wall() - 1))
            await eventually(lambda: bench.counts["due by its clock"] == 1)
            assert bench.counts["after 0"] == 0
            second_clock.turn_to(now + 601)
            await eventually(lambda: all(bench.counts[f"after {number}"] for number in range(20)))
            await eventually(lambda: idle(second))
            assert second.leaders[0].view.facts().term == term, "its term is greater, whatever its clock says"
    assert set(bench.counts.values()) == {1}


@pytest.mark.parametrize("minute", [15, 58])
@pytest.mark.parametrize("ahead", [FIVE_MINUTES, -FIVE_MINUTES], ids=["ahead", "behind"])
async def test_a_client_whose_clock_differs_from_the_leaders_loses_and_doubles_nothing(
    settings: Settings, bench: Bench, eventually: Eventually, ahead: float, minute: int
) -> None:
    """A job enqueued for now leaves when the leader's clock says so: at once, or five minutes later. Two minutes before
    the hour, a client that is ahead declares what recurs every hour in the next one: that hour's tick is not due."""
    clock = TurnedClock()
    clock.turn_to(clock.wall() // HOUR * HOUR + minute * 60)
    client_clock = TurnedClock(clock.ahead + ahead)
    async with running(settings, clock) as scheduler, Client(settings, clock=client_clock) as client:
        await eventually(lambda: scheduler.leading)
        now = clock.wall()
        jid = await client.enqueue_in(1, "C")
        far = await client.enqueue_in(29 * 86400, "C")
        await bench.put(names.CONTROLS, {"type": "recurring", "op": "declare", "name": "r", "every": 3600,
                                         "job": {"class": "R"}, "at": now + ahead})  # fmt: skip
        if ahead > 0:
            leader = scheduler.leaders[0]
            await eventually(lambda: leader.follower.query(lambda: leader.view.count() == 2))
            assert bench.counts[jid] == 0
            clock.turn_to(now + ahead + 2)
        await eventually(lambda: bench.counts[jid] == 1)
        tick = math.ceil((now + ahead) / HOUR) * HOUR
        for passed in (1, 2):
            clock.turn_to(tick + (passed - 1) * HOUR + 1)
            await eventually(lambda passed=passed: sum(job["class"] == "R" for job in bench.jobs) >= passed)
        await eventually(lambda: idle(scheduler))
        recurring = [job["recurring"]["tick"] for job in bench.jobs if job["class"] == "R"]
        assert len(recurring) in (2, 3)
        assert len(set(recurring)) == len(recurring)
        assert bench.counts[far] == 0
    assert not bench.dead
    assert set(bench.counts.values()) <= {0, 1}
