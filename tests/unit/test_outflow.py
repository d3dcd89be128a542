"""What was granted leaves when it is due, the oldest first, and never so much unsettled that a kill costs more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.model.pending import Pending, Summary
from amqpjobs.model.position import Position
from amqpjobs.scheduler import outflow
from amqpjobs.scheduler.outflow import PART, WINDOW, Outflow
from amqpjobs.scheduler.release import Published
from amqpjobs.streams.errors import ConfirmTimeout
from tests.patience import PATIENCE


def entry(number: int, due: float) -> Pending:
    pos = Position(number, 0)
    return Pending(pos.id, pos, pos, f"j{number}", due, b"{}", Summary("C", "q", 0, "", "", None, ()))


class Broker:
    """Takes what is published, when the test lets it, and the settlements."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.begun: list[tuple[str, float]] = []
        self.settled: list[str] = []
        self.most = 0
        self.takes = asyncio.Event()
        self.takes.set()
        self.records = asyncio.Event()
        self.records.set()
        self.refuses: set[str] = set()
        self.deaf = False
        self._more = asyncio.Event()
        self.flow = Outflow(self.publish, self.settle, self.clock)

    async def publish(self, entries: Sequence[Pending]) -> Published:
        self.begun += [(each.id, self.clock.wall()) for each in entries]
        self.most = max(self.most, len(self.begun) - len(self.settled))
        self._more.set()
        await self.takes.wait()
        failed = [each for each in entries if each.id in self.refuses]
        error = ConfirmTimeout("no confirm") if failed else None
        return Published([each.id for each in entries if each not in failed], [], failed, error)

    async def settle(self, published: Published) -> None:
        await self.records.wait()
        if self.deaf:
            raise ConfirmTimeout("the stream takes nothing")
        self.settled += published.enqueued

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.begun) < count:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    running = asyncio.create_task(broker.flow.run())
    yield broker
    running.cancel()
    await broker.flow.finish(0)
    with contextlib.suppress(asyncio.CancelledError, ConfirmTimeout):
        await running


async def test_the_oldest_leave_first_and_nothing_before_its_time(broker: Broker) -> None:
    now = broker.clock.wall()
    due = {str(n): now + shift for n, shift in enumerate((0.05, -5.0, 0.02, -1.0, 0.08))}
    broker.flow.put([entry(int(id_), at) for id_, at in due.items()])
    async with asyncio.timeout(PATIENCE):
        await broker.flow.drained()
    assert [id_ for id_, _ in broker.begun] == ["1", "3", "2", "0", "4"]
    assert all(at >= due[id_] for id_, at in broker.begun)
    assert broker.flow.idle


async def test_one_that_is_put_in_later_and_due_earlier_need_not_wait(broker: Broker) -> None:
    now = broker.clock.wall()
    broker.flow.put([entry(1, now + 3600)])  # claimed ahead; by a clock that was set back since
    broker.flow.put([entry(2, now)])
    await broker.until(2)
    assert [id_ for id_, _ in broker.begun] == ["2", "1"], "none waits longer than it may be claimed ahead"


async def test_what_is_published_and_not_settled_never_exceeds_the_window(broker: Broker) -> None:
    broker.records.clear()
    broker.flow.put([entry(n, 0.0) for n in range(1000)])
    await broker.until(WINDOW)
    waiting = asyncio.create_task(broker.flow.room())
    await asyncio.sleep(0)
    assert not waiting.done(), "no more is claimed while so much waits"
    broker.records.set()
    async with asyncio.timeout(PATIENCE):
        await waiting
        await broker.flow.drained()
    assert broker.most == WINDOW
    assert len(broker.settled) == 1000
    assert [id_ for id_, _ in broker.begun] == [str(n) for n in range(1000)]


async def test_what_the_broker_does_not_take_is_tried_again_and_the_rest_goes_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outflow, "RETRY", 0.01)
    broker.refuses = {"3"}
    broker.flow.put([entry(n, 0.0) for n in range(2 * PART)])
    await broker.until(2 * PART + 3)
    assert len(broker.settled) == 2 * PART - 1
    assert not broker.flow.idle
    assert "1 jobs could not be published" in caplog.text
    broker.refuses = set()
    async with asyncio.timeout(PATIENCE):
        await broker.flow.drained()
    assert sorted(broker.settled, key=int) == [str(n) for n in range(2 * PART)]


async def test_what_cannot_be_settled_ends_the_reign() -> None:
    broker = Broker()
    broker.deaf = True
    broker.flow.put([entry(1, 0.0)])
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConfirmTimeout):
            await broker.flow.run()


async def test_a_leader_that_is_stopped_settles_what_is_on_its_way_and_begins_nothing_more() -> None:
    broker = Broker()
    broker.takes.clear()
    running = asyncio.create_task(broker.flow.run())
    broker.flow.put([entry(n, 0.0) for n in range(WINDOW + PART)])
    await broker.until(WINDOW)
    running.cancel()
    finishing = asyncio.create_task(broker.flow.finish(PATIENCE))
    await asyncio.sleep(0)
    broker.takes.set()
    await finishing
    assert len(broker.settled) == len(broker.begun) == WINDOW
