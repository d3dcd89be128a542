"""HB-02 with a real cut: a worker's network is gone for a while, its connections stay open on both sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from amqpjobs.client import Client
from amqpjobs.clock import Clock, SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan
from tests.forwarding import forwarding
from tests.web.conftest import Dashboard, serving

Eventually = Callable[..., Awaitable[Any]]


@dataclass
class Cut:
    """What is to be seen while a worker is cut off; `log` are the steps and when they were seen, in seconds."""

    settings: Settings
    eventually: Eventually
    clock: Clock | None = None
    """The dashboard's."""
    log: list[tuple[str, float]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    async def run(self, cut_off: Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]) -> None:
        """A worker with a running job is cut off while `cut_off(gone)` lasts, and is there again afterwards."""
        jobs, go = Registry(), asyncio.Event()
        begun: list[str] = []

        @jobs.job(name="Hold")
        async def hold(name: str) -> None:
            begun.append(name)
            await go.wait()

        self._link = Link(self.settings, "look", SystemClock())
        await self._link.start()
        async with forwarding(self.settings) as (network, away), serving(self.settings, self.clock) as served:
            worker = Launcher(away, Plan(queues=[QueueShare("default", 0)]), jobs=jobs)
            await worker.start()
            try:
                async with Client(self.settings) as client:
                    await client.enqueue("Hold", "first")
                    await self._seen("there, with a job", lambda: self._there(served, running=1))
                    [nonce] = await self._nonces(served)
                    network.cut()
                    self._note("cut")
                    await cut_off(lambda: self._gone(served))
                    self._note("gone from the dashboard")
                    assert await self._ready() == 1, "the job of a worker that is cut off is given to another"
                    network.heal()
                    go.set()
                    await self._seen("there again", lambda: self._there(served))
                    assert await self._nonces(served) == [nonce]
                    await client.enqueue("Hold", "second")
                    await self._seen("works again", lambda: "second" in begun)
                    await self._seen("nothing is left", self._empty)
            finally:
                network.heal()
                await worker.stop(0)
                await self._link.stop()

    async def _seen(self, what: str, condition: Callable[[], Any]) -> None:
        await self.eventually(condition)
        self._note(what)

    def _note(self, what: str) -> None:
        self.log.append((what, time.monotonic() - self._began))

    async def _nonces(self, served: Dashboard) -> list[str]:
        return [each["nonce"] for each in (await served.get("/api/processes")).json()]

    async def _there(self, served: Dashboard, running: int = 0) -> bool:
        found = (await served.get("/api/processes")).json()
        return len(found) == 1 and len(found[0]["running"]) >= running

    async def _gone(self, served: Dashboard) -> bool:
        return await self._nonces(served) == [] and await self._ready() == 1

    async def _empty(self) -> bool:
        return await self._ready() == 0

    async def _ready(self) -> int:
        state = await (await self._link.connection()).passive(names.broker_queue("default"))
        return 0 if state is None else state.ready
