"""Services start, stop and fail in ways that a process can tell."""

from __future__ import annotations

import asyncio

from amqpjobs.service import Service, first_failure
from tests.patience import PATIENCE


class Loop(Service):
    """Runs until told to fail."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.starts = 0
        self.fail = asyncio.Event()

    async def run(self) -> None:
        self.starts += 1
        await self.fail.wait()
        raise RuntimeError("broken")


async def test_start_and_stop_may_be_repeated_in_any_order() -> None:
    loop = Loop("loop")
    await loop.stop()
    await loop.start()
    await loop.start()
    await asyncio.sleep(0)
    assert (loop.running, loop.starts) == (True, 1)
    await loop.stop()
    await loop.stop()
    assert not loop.running
    await loop.start()
    await asyncio.sleep(0)
    assert (loop.running, loop.starts) == (True, 2)
    await loop.stop()
    assert loop.failed is None


async def test_the_first_failure_is_told_and_a_stop_is_none() -> None:
    good, bad = Loop("good"), Loop("bad")
    await good.start()
    await bad.start()
    watching = asyncio.ensure_future(first_failure([good, bad]))
    await asyncio.sleep(0)
    assert not watching.done()
    bad.fail.set()
    assert await asyncio.wait_for(watching, PATIENCE) == "bad ended: broken"
    assert isinstance(bad.failed, RuntimeError)
    await good.stop()
