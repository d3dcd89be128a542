"""What begins in the place of a job that ended on the loop, and when."""

from __future__ import annotations

import asyncio
import contextvars

from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.worker.context import current
from tests.broker.conftest import Workers
from tests.conftest import Eventually

JOBS = 20
_left: contextvars.ContextVar[str] = contextvars.ContextVar("left", default="nothing")


class Site:
    """Jobs that note the loop's turn when they begin and end; the first one waits at a gate."""

    def __init__(self) -> None:
        self.jobs = Registry()
        self.gate = asyncio.Event()
        self.turn = 0
        self.began: list[int] = []
        self.ended: list[int] = []
        self.found: set[str] = set()
        self.alone = True
        self.jobs.job(name="noted")(self._noted)

    def count(self) -> None:
        """Count the turns from now on."""
        self.turn += 1
        if len(self.ended) < JOBS:
            asyncio.get_running_loop().call_soon(self.count)

    async def _noted(self, jid: str) -> None:
        self.alone = self.alone and len(self.began) == len(self.ended) and current().meta["mine"] == jid
        self.began.append(self.turn)
        self.found.add(_left.get())
        _left.set(jid)
        await self.gate.wait()
        await asyncio.sleep(0.002)
        self.ended.append(self.turn)


async def test_the_next_job_begins_in_the_turn_in_which_one_ended_and_finds_nothing_of_it(
    client: Client, workers: Workers, eventually: Eventually
) -> None:
    site = Site()
    worker = await workers(site.jobs, concurrency=1, prefetch=JOBS)
    for n in range(JOBS):
        await client.enqueue("noted", str(n), meta={"mine": str(n)})
    await eventually(lambda: worker._fetcher.buffered == JOBS - 1)
    site.count()
    site.gate.set()
    await eventually(lambda: len(site.ended) == JOBS)
    assert site.began[1:] == site.ended[:-1]
    assert (site.found, site.alone) == ({"nothing"}, True)
    assert await workers.left() == 0
