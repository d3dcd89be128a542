"""How many jobs end, and begin, in one turn of a worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import reading
from amqpjobs.model.messages import Job
from amqpjobs.streams.port import Incoming, Properties
from amqpjobs.worker.context import JobContext
from amqpjobs.worker.executor import MANY_TOGETHER, TOGETHER, Executor
from amqpjobs.worker.run import Ended, Run
from amqpjobs.worker.subscription import Delivery, Subscription
from tests.patience import PATIENCE

AT_ONCE = 200


class PacedClock(SystemClock):
    """Each look at it takes `seconds`: so long takes each job."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._now = 0.0

    def steady(self) -> float:
        self._now += self.seconds
        return self._now


@pytest.fixture
def registry() -> Registry:
    jobs = Registry()

    @jobs.job
    async def nothing() -> None:
        pass

    return jobs


def run() -> Run:
    read = reading.read_job(b'{"class":"nothing","jid":"a"}', queue="q", jid="")
    assert isinstance(read, Job)
    context = JobContext("a", "nothing", "q", 1, 0, None, 0.0)
    return Run(read, context, Delivery(Incoming(b"{}", 1, "", "q", False, Properties()), "q", Subscription("q", 1)))


async def test_jobs_are_told_of_in_large_groups_only_where_they_take_the_loop_no_time(registry: Registry) -> None:
    """A turn of the loop for each ten costs a tenth of a no-op job; others would wait too long for the fiftieth."""
    clock = PacedClock()
    executor = Executor(registry, AT_ONCE, clock)
    groups: list[int] = []
    all_ended = asyncio.Event()

    def on_ended(group: Sequence[tuple[Run, Ended]]) -> None:
        assert all(how.failure is None for _, how in group)
        groups.append(len(group))
        if sum(groups) == AT_ONCE:
            all_ended.set()

    executor.on_ended = on_ended

    async def round_of_jobs() -> None:
        groups.clear()
        all_ended.clear()
        for _ in range(AT_ONCE):
            executor.start(run())
        async with asyncio.timeout(PATIENCE):
            await all_ended.wait()

    assert executor.together == TOGETHER, "until it is known how long jobs take they may take long"
    await round_of_jobs()
    await round_of_jobs()
    assert (max(groups), executor.together) == (MANY_TOGETHER, MANY_TOGETHER)
    clock.seconds = 0.001
    await round_of_jobs()
    await round_of_jobs()
    assert (max(groups), executor.together) == (TOGETHER, TOGETHER)
    executor.close()
