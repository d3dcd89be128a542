"""HB-02: what a worker's network does to it, by a real cut (two minutes of it: `python -m tests.chaos.cut`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from amqpjobs.settings import Settings
from tests.broker.cutting import Cut
from tests.conftest import Eventually
from tests.web.test_api import ShiftedClock


async def test_hb_02_a_worker_that_was_cut_off_comes_back(settings: Settings, eventually: Eventually) -> None:
    clock = ShiftedClock(0)
    cut = Cut(settings.model_copy(update={"heartbeat": 1}), eventually, clock)

    async def minutes(gone: Callable[[], Awaitable[bool]]) -> None:
        """The dashboard's minutes; to the broker and the worker they are seconds, and so are their heartbeats."""
        clock.ahead += 120
        await eventually(gone)

    await cut.run(minutes)
