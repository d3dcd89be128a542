"""The dead set keeps so many records for so long; the leader takes out the rest, the oldest first, and counts them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.sqlite_store import FIRST
from amqpjobs.streams.views import DelayedView
from tests.broker.bench import Bench
from tests.conftest import Eventually


def many(entries: list[dict[str, object]]) -> bytes:
    return json.dumps(entries).encode()


def dead(jid: str, died_at: float | None = None) -> dict[str, object]:
    at = time.time() if died_at is None else died_at
    job = {"class": "C", "args": [], "queue": "default"}
    return {"type": "dead_job", "jid": jid, "died_at": at, "retry_count": 1, "error_class": "E", "job": job}


class Look:
    """A view of the dead set of the test's own."""

    def __init__(self, link: Link, folder: Path) -> None:
        self.view = DelayedView(folder, names.DEAD)
        self.follower = Follower(link, self.view, names.DEAD, clock=SystemClock())

    async def jids(self) -> list[str]:
        """In the order of arrival."""
        found = await self.follower.query(lambda: self.view.store.all_after(FIRST, 1000))
        return [entry.jid for _, entry in found]

    async def dropped(self) -> int:
        return (await self.follower.query(self.view.facts)).dropped


@pytest.fixture
async def look(link: Link, bench: Bench, tmp_path: Path) -> Look:
    folder = tmp_path / "look"
    folder.mkdir()
    found = Look(link, folder)
    await found.follower.start()
    return found


async def running(settings: Settings, clock: SystemClock | None = None, **limits: object) -> Scheduler:
    scheduler = Scheduler(settings.model_copy(update=limits), clock or SystemClock())
    await scheduler.start()
    return scheduler


async def test_what_is_more_than_the_set_holds_is_dropped_oldest_first_and_counted(
    settings: Settings, bench: Bench, look: Look, eventually: Eventually
) -> None:
    """Arrival counts, not what a record says of itself: the last to come claims to be the first to have died."""
    await bench.put(names.DEAD, many([dead(f"d{n}") for n in range(700)]))
    await bench.put(names.DEAD, dead("liar", died_at=5.0))
    scheduler = await running(settings, dead_max=100)
    try:
        await eventually(lambda: scheduler.leading)

        async def hundred() -> bool:
            return len(await look.jids()) == 100

        await eventually(hundred)
        assert await look.jids() == [*(f"d{n}" for n in range(601, 700)), "liar"]
        assert await look.dropped() == 601
        await bench.put(names.DEAD, dead("one-more"))

        async def gone() -> bool:
            return (await look.jids())[-1] == "one-more" and len(await look.jids()) == 100

        await eventually(gone)
        assert await look.dropped() == 602
    finally:
        await scheduler.stop()
        await look.follower.stop()


class StoppedClock(SystemClock):
    """The time of day stands still: what is too old does not depend on how quick the test is."""

    def __init__(self, at: float) -> None:
        self.at = at

    def wall(self) -> float:
        return self.at


async def test_what_is_too_old_is_dropped_and_what_arrived_later_is_not(
    settings: Settings, bench: Bench, look: Look, eventually: Eventually
) -> None:
    await bench.put(names.DEAD, many([dead("old"), dead("older", died_at=time.time() - 1e6)]))
    arrived = time.time()
    await eventually(lambda: time.time() > arrived + 2)
    between = time.time()
    await eventually(lambda: time.time() > between + 2)
    await bench.put(names.DEAD, dead("young", died_at=5.0))
    scheduler = await running(settings, StoppedClock(between + 3600), dead_max_age="1h")
    try:

        async def dropped() -> bool:
            return await look.dropped() == 2

        await eventually(dropped)
        assert await look.jids() == ["young"]
    finally:
        await scheduler.stop()
        await look.follower.stop()
