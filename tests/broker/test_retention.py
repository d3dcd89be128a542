"""What waits outlives its stream's retention, and a scheduler needs nothing but the broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.model import control, names
from amqpjobs.model.checkpoint import Checkpoint
from amqpjobs.model.pending import Pending
from amqpjobs.model.protocol import Command, Op, Target, Verdict
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.scheduler.cleaner import Cleaner
from amqpjobs.scheduler.reign import Reign
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.checkpoints import ColdStart, published
from amqpjobs.streams.epoch import first_from
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.views import DelayedView
from tests.broker.bench import Bench, running, scheduled
from tests.conftest import Broker
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]
T = TypeVar("T")

YEAR = 400 * 86400.0
FILLER = 40_000


@pytest.fixture
def small(settings: Settings) -> Settings:
    """Streams that forget soon."""
    limits: dict[str, str | int] = {"max_bytes": 2_000_000, "segment_bytes": 250_000}
    return settings.model_copy(update={"streams": {names.SCHEDULED: limits}})


async def fill(bench: Bench, size: int) -> None:
    """So many bytes that mean nothing."""
    for _ in range(size // FILLER):
        await bench.put(names.SCHEDULED, {"type": "marker", "nonce": "x" * FILLER})


async def first_offset(bench: Bench) -> int:
    found = await first_from(await bench.link.connection(), names.SCHEDULED, "first", 5.0)
    assert found is not None
    return found


async def held(view: DelayedView, follower: Follower) -> dict[str, Pending]:
    return {e.id: e for _, e in await follower.query(lambda: view.store.all_after(-(2**63), 10_000))}


@contextlib.asynccontextmanager
async def reader(link: Link, folder: Path) -> AsyncIterator[tuple[DelayedView, Follower]]:
    """A reader on a fresh disk."""
    view = DelayedView(folder, names.SCHEDULED)
    follower = Follower(link, view, names.SCHEDULED, clock=SystemClock(), origin=ColdStart(view, SystemClock()))
    await follower.start()
    try:
        await follower.wait_caught_up(PATIENCE)
        yield view, follower
    finally:
        await follower.stop()
        view.close()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def agree(scheduler: Scheduler, link: Link, folder: Path) -> dict[str, Pending]:
    """The leader's view, and that of a reader that has nothing but the broker, hold the same."""
    leader = scheduler.leaders[0]
    async with reader(link, folder) as (view, follower):
        assert (await follower.query(view.facts)).upto > 0, "it began with a checkpoint"
        cold = await held(view, follower)
        warm = await held(leader.view, leader.follower)
        assert cold == warm
    return cold


def crown(scheduler: Scheduler) -> tuple[Reign, Cleaner]:
    reign = scheduler.leaders[0].reign
    assert reign is not None
    return reign, reign.cleaner


async def command(scheduler: Scheduler, bench: Bench, op: Op, jid: str, **more: Any) -> list[Verdict]:
    wish = Command(uuid=f"{op}{jid}", op=op, targets=(Target(jid, None),), at=time.time(), by="test", **more)
    await bench.put(names.SCHEDULED, control.write_command(wish))
    leader = scheduler.leaders[0]
    return await leader.follower.wait(lambda: leader.view.verdicts(wish.uuid), timeout=PATIENCE)


async def fold_all(scheduler: Scheduler, count: int) -> None:
    leader = scheduler.leaders[0]
    await leader.follower.wait(lambda: leader.view.count() == count or None, timeout=PATIENCE)


async def test_the_stream_forgets_and_the_job_does_not(
    small: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    await (await link.connection()).delete_queue(names.SCHEDULED)
    async with running(small) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.SCHEDULED, scheduled("far", time.time() + YEAR))
        await bench.put(names.SCHEDULED, scheduled("soon", time.time() + 3600))
        await fold_all(scheduler, 2)
        leader = scheduler.leaders[0]
        began = min(entry.pos.offset for entry in (await held(leader.view, leader.follower)).values())
        while await first_offset(bench) <= began:
            await fill(bench, 600_000)
            await eventually(lambda: short_enough(scheduler))
        assert leader.view.facts().trimmed is None, "it was carried before the broker forgot it"
        cold = await agree(scheduler, link, made(tmp_path / "cold"))
        assert {entry.jid for entry in cold.values()} == {"far", "soon"}
        assert all(entry.pos.offset > began for entry in cold.values())
        assert await command(scheduler, bench, Op.TRIGGER, "far") == [Verdict.DONE]
        await eventually(lambda: bench.counts["far"] == 1)
    assert bench.counts == {"far": 1}


async def short_enough(scheduler: Scheduler) -> bool:
    """Its own cleaner has nothing left to carry, and has published what it did."""
    reign, cleaner = crown(scheduler)
    return reign.leading and not await cleaner.too_long(reign)


class Meddling:
    """A reign into whose work something comes before the append number `at`: when what is appended is decided."""

    def __init__(self, reign: Reign, at: int, meddle: Callable[[], Awaitable[Any]]) -> None:
        self._reign = reign
        self._at = at
        self._meddle = meddle
        self.steps = 0

    @property
    def epoch(self) -> str:
        return self._reign.epoch

    @property
    def n(self) -> int:
        return self._reign.n

    async def append(self, entries: Sequence[dict[str, Any]]) -> None:
        await self._step()
        await self._reign.append(entries)

    async def mine(self, question: Callable[[], T]) -> T:
        answer = await self._reign.mine(question)
        await self._step()
        return answer

    async def _step(self) -> None:
        if self.steps == self._at:
            await self._meddle()
        self.steps += 1


@pytest.mark.parametrize("op", [Op.DELETE, Op.RESCHEDULE, Op.TRIGGER])
async def test_what_lands_between_any_two_steps_is_not_undone(
    settings: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path, op: Op
) -> None:
    more = {"due": time.time() + 7200} if op is Op.RESCHEDULE else {}
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.leading)
        reign, cleaner = crown(scheduler)
        leader = scheduler.leaders[0]
        at, steps = 0, 1
        while at < steps:
            await bench.put(names.SCHEDULED, scheduled(f"j{at}", time.time() + YEAR))
            await bench.put(names.SCHEDULED, scheduled(f"k{at}", time.time() + YEAR))
            await leader.follower.wait(lambda at=at: leader.view.find(f"k{at}") or None, timeout=PATIENCE)  # type: ignore[misc]
            meddling = Meddling(reign, at, partial(command, scheduler, bench, op, f"j{at}", **more))
            assert await cleaner.carry(meddling) > 0
            assert await cleaner.checkpoint(meddling) is not None
            steps = meddling.steps
            cold = await agree(scheduler, link, made(tmp_path / f"cold{at}"))
            mine = [entry for entry in cold.values() if entry.jid == f"j{at}"]
            assert [entry.due for entry in mine] == ([more["due"]] if op is Op.RESCHEDULE else [])
            assert [entry.jid for entry in cold.values() if entry.jid == f"k{at}"] == [f"k{at}"]
            at += 1
        assert steps >= 3
        if op is Op.TRIGGER:
            await eventually(lambda: len(bench.counts) == steps)
    assert set(bench.counts.values()) <= {1}


async def test_many_schedulers_on_fresh_disks_need_the_broker_alone(
    settings: Settings, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    async with running(settings) as first:
        await eventually(lambda: first.leading)
        await bench.put(names.SCHEDULED, scheduled("a", time.time() + YEAR))
        await bench.put(names.SCHEDULED, scheduled("b", time.time() + YEAR))
        await fold_all(first, 2)
        assert await command(first, bench, Op.DELETE, "a") == [Verdict.DONE]
        reign, cleaner = crown(first)
        assert await cleaner.carry(reign) == 1
        assert await cleaner.checkpoint(reign) is not None
    for number in range(3):
        fresh = settings.model_copy(update={"state_dir": tmp_path / f"disk{number}"})
        async with running(fresh) as scheduler:
            await eventually(lambda scheduler=scheduler: scheduler.leading)
            facts = scheduler.leaders[0].view.facts()
            assert facts.upto > 0, "it began with a checkpoint"
            await fold_all(scheduler, 1)
            await bench.put(names.SCHEDULED, scheduled(f"now{number}", time.time()))
            await eventually(lambda number=number: bench.counts[f"now{number}"] == 1)
            await fold_all(scheduler, 1)
    assert set(bench.counts) == {"now0", "now1", "now2"}


async def test_a_trim_past_what_waits_is_told_and_mended(
    small: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    """Faster than any cleaner: the whole of the stream's limit is written at once."""
    await (await link.connection()).delete_queue(names.SCHEDULED)
    async with running(small) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.SCHEDULED, scheduled("far", time.time() + YEAR))
        await fold_all(scheduler, 1)
        reign, cleaner = crown(scheduler)
        leader = scheduler.leaders[0]
        began = (await leader.follower.query(leader.view.store.low)).offset  # type: ignore[union-attr]
        trimmed = began + 1
        assert await cleaner.mend(reign, began) == 0
        assert await cleaner.mend(reign, trimmed) == 1
        assert leader.view.facts().trimmed is not None
        assert leader.view.facts().trimmed.first == trimmed  # type: ignore[union-attr]
        assert (await leader.follower.query(leader.view.store.low)).offset > began  # type: ignore[union-attr]
        assert await cleaner.checkpoint(reign) is not None
        cold = await agree(scheduler, link, made(tmp_path / "cold"))
    assert [entry.jid for entry in cold.values()] == ["far"]


async def test_a_reader_that_retention_overtook_goes_on_with_a_checkpoint(
    small: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    await (await link.connection()).delete_queue(names.SCHEDULED)
    folder = made(tmp_path / "view")
    async with running(small) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.SCHEDULED, scheduled("far", time.time() + YEAR))
        await bench.put(names.SCHEDULED, scheduled("gone", time.time() + YEAR))
        await fold_all(scheduler, 2)
        async with reader(link, folder) as (view, follower):
            assert await follower.query(view.count) == 2
            position = await follower.query(view.position)
        assert position is not None
        assert await command(scheduler, bench, Op.DELETE, "gone") == [Verdict.DONE]
        while await first_offset(bench) <= position[0] + 1:
            await fill(bench, 600_000)
            await eventually(lambda: short_enough(scheduler))
        reign, cleaner = crown(scheduler)
        assert await cleaner.checkpoint(reign) is not None
        view = DelayedView(folder, names.SCHEDULED)
        follower = Follower(link, view, names.SCHEDULED, clock=SystemClock(), origin=ColdStart(view, SystemClock()))
        await follower.start()
        await follower.wait(lambda: view.facts().upto or None, timeout=PATIENCE)
        await follower.wait_caught_up(PATIENCE)
        found = await held(view, follower)
        await follower.stop()
        view.close()
    assert {entry.jid for entry in found.values()} == {"far"}
    assert view.lost_before is None


async def test_of_a_stream_made_anew_the_old_checkpoints_are_not_taken(
    settings: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.SCHEDULED, scheduled("old", time.time() + YEAR))
        await fold_all(scheduler, 1)
        reign, cleaner = crown(scheduler)
        assert await cleaner.checkpoint(reign) is not None
    connection = await link.connection()
    await connection.delete_queue(names.SCHEDULED)
    await topology.ensure_stream(connection, settings, names.SCHEDULED)
    await bench.put(names.SCHEDULED, scheduled("new", time.time() + YEAR))
    assert await published(connection, names.SCHEDULED, "first")
    async with reader(link, made(tmp_path / "cold")) as (view, follower):
        assert {entry.jid for entry in (await held(view, follower)).values()} == {"new"}


async def test_a_checkpoint_follows_also_what_was_settled(
    settings: Settings, link: Link, bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few messages settle many: what came and went is not to be read by who begins."""
    connection = await link.connection()

    async def last(*, low: int = 0, upto: int = 0) -> Checkpoint | None:
        known = await published(connection, names.SCHEDULED, "first")
        return next((each for each in reversed(known) if each.low >= low and each.upto >= upto), None)

    monkeypatch.setattr("amqpjobs.scheduler.cleaner.NEWS", 20)
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.leading)
        for n in range(25):
            await bench.put(names.SCHEDULED, scheduled(f"j{n}", time.time() + YEAR))
        await fold_all(scheduler, 25)
        assert (await eventually(lambda: last(upto=20))).low < 20
        gone = tuple(Target(f"j{n}", None) for n in range(25))
        wish = Command(uuid="u", op=Op.DELETE, targets=gone, at=time.time(), by="test")
        await bench.put(names.SCHEDULED, control.write_command(wish))
        await eventually(lambda: last(low=25))


async def test_a_stream_that_ends_with_the_very_message_that_was_read_last_may_be_another(
    settings: Settings, link: Link, bench: Bench, tmp_path: Path
) -> None:
    """As where a broker lost the tail, and what was sent again landed at its place, after something else."""
    folder, last = made(tmp_path / "view"), scheduled("last", time.time() + YEAR)
    for before in ("lost", "another"):
        await bench.put(names.SCHEDULED, scheduled(before, time.time() + YEAR))
        await bench.put(names.SCHEDULED, last)
        async with reader(link, folder) as (view, follower):
            await follower.wait(lambda view=view: view.count() == 2 or None, timeout=PATIENCE)  # type: ignore[misc]
            assert {entry.jid for entry in (await held(view, follower)).values()} == {before, "last"}
        connection = await link.connection()
        await connection.delete_queue(names.SCHEDULED)
        await topology.ensure_stream(connection, settings, names.SCHEDULED)


async def test_a_minute_old_is_too_old_where_a_minute_is_all_that_is_kept(
    settings: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path, broker: Broker
) -> None:
    """By age, with the broker's own clock and its own trimming: about 70 seconds."""
    limits: dict[str, str | int] = {"max_age": "60s", "segment_bytes": 100_000}
    short = settings.model_copy(update={"streams": {names.SCHEDULED: limits}})
    await (await link.connection()).delete_queue(names.SCHEDULED)
    async with running(short) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.SCHEDULED, scheduled("far", time.time() + YEAR))
        await fold_all(scheduler, 1)
        leader = scheduler.leaders[0]
        began = (await leader.follower.query(leader.view.store.low)).offset  # type: ignore[union-attr]

        async def forgotten() -> bool:
            await fill(bench, 9_000_000 if broker.lavinmq else 120_000)  # a segment and more: LavinMQ's have 8 MiB
            await asyncio.sleep(1)
            return await first_offset(bench) > began

        await eventually(forgotten, timeout=95)
        assert leader.view.facts().trimmed is None, "it was carried before the broker forgot it"
        cold = await agree(scheduler, link, made(tmp_path / "cold"))
        assert [json.loads(entry.raw)["jid"] for entry in cold.values()] == ["far"]


async def test_a_reader_that_was_overtaken_while_nobody_led_knows_all_again(
    small: Settings, link: Link, bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    """A dashboard slept through a burst that retention took, and listed nothing for ever: the scheduler had it all."""
    jids = {f"j{n}" for n in range(30)}
    await (await link.connection()).delete_queue(names.SCHEDULED)
    slept = made(tmp_path / "slept")
    async with running(small) as scheduler:
        await eventually(lambda: scheduler.leading)
        async with reader(link, slept):
            pass
        for jid in jids:
            await bench.put(names.SCHEDULED, scheduled(jid, time.time() + YEAR))
        await fold_all(scheduler, 30)
        leader = scheduler.leaders[0]
        began = max(entry.pos.offset for entry in (await held(leader.view, leader.follower)).values())
    while await first_offset(bench) <= began:
        await fill(bench, 600_000)
    async with reader(link, slept) as (view, follower):
        assert await follower.query(view.count) == 0
        assert view.lost_before is not None
        async with running(small):
            await follower.wait(lambda: view.count() == 30 or None, timeout=PATIENCE)
            assert {entry.jid for entry in (await held(view, follower)).values()} == jids
            await eventually(lambda: view.lost_before is None)
