"""Runs the whole product on a private broker, kills parts of it at random, then counts.

`python -m tests.chaos --seconds 600 --seed 7` from a shell (`make chaos`); the test suite runs a short one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from amqpjobs import Client
from amqpjobs.streams.errors import BrokerError
from tests.chaos.site import CONCURRENCY, Site

RELEASE_BATCH = 256
DRAIN = 120.0
"""Seconds in which everything must have come to rest once the chaos is over."""


@dataclass
class Report:
    """What was sent and what became of it."""

    sent: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)
    """Sent, and never confirmed to the caller: may have arrived."""
    done: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    expected_dead: set[str] = field(default_factory=set)
    waiting: dict[str, int] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> set[str]:
        return self.sent - set(self.done) - set(self.dead)

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for counts in (self.done, self.dead) for count in counts.values())

    @property
    def bound(self) -> int:
        """A killed worker runs again what it had taken; a killed leader what it had claimed; a broker's restart and a
        forced close, all that was out to every worker and claimed by the leader."""
        worker, leader = 2 * CONCURRENCY, RELEASE_BATCH
        everyone = 2 * worker + leader
        return (
            self.kills["worker"] * worker
            + self.kills["scheduler"] * leader
            + (self.kills["broker"] + self.kills["connections"]) * everyone
        )

    def __str__(self) -> str:
        return (
            f"sent {len(self.sent)} (+{len(self.uncertain)} uncertain), done {len(self.done)}, dead {len(self.dead)}, "
            f"waiting {self.waiting}, lost {len(self.lost)}, duplicates {self.duplicates} (bound {self.bound}), "
            f"kills {dict(self.kills)}"
        )


class Chaos:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.site = Site(folder)
        self.report = Report()
        self._blows: list[str] = []

    async def run(self, seconds: float, rate: float) -> Report:
        """So many seconds of jobs under fire, then rest, then the count."""
        async with self.site.up():
            producing = asyncio.create_task(self._produce(rate))
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                await asyncio.sleep(self.random.uniform(0.5, 4.0))
                await self._strike()
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing
            await self._settle()
            await self._count()
        return self.report

    async def _produce(self, rate: float) -> None:
        async with Client(self.site.settings) as client:
            while True:
                await asyncio.gather(*(self._send(client) for _ in range(10)), asyncio.sleep(10 / rate))

    async def _send(self, client: Client) -> None:
        jid = f"{self.random.getrandbits(96):024x}"
        kind = self.random.random()
        try:
            if kind < 0.5:
                await client.enqueue("quick", jid=jid)
            elif kind < 0.6:
                await client.enqueue("slow", self.random.uniform(0.05, 1.0), jid=jid)
            elif kind < 0.7:
                await client.enqueue("threaded", self.random.uniform(0.05, 0.5), jid=jid)
            elif kind < 0.8:
                await client.enqueue("recovers", self.random.randint(1, 3), jid=jid, retry_delays=[0.5])
            elif kind < 0.85:
                self.report.expected_dead.add(jid)
                await client.enqueue("dies", jid=jid, retry=1, retry_delays=[0.5])
            else:
                await client.enqueue_in(self.random.uniform(0.5, 8.0), "quick", jid=jid)
        except BrokerError:
            self.report.uncertain.add(jid)
        else:
            self.report.sent.add(jid)

    async def _strike(self) -> None:
        """One blow: a part is killed and started again, all connections are closed, or the broker restarts."""
        if not self._blows:
            self._blows = ["part"] * 5 + ["connections"] * 2 + ["broker"]
            self.random.shuffle(self._blows)
        kind = self._blows.pop()
        if kind == "part":
            name = self.random.choice(sorted(self.site.parts))
            self.report.kills[name.split(" ")[0]] += 1
            self.site.running[name].send(signal.SIGKILL)
            await asyncio.to_thread(self.site.running[name].wait)
            await asyncio.sleep(self.random.uniform(0.0, 2.0))
            self.site.begin(name)
        elif kind == "connections":
            self.report.kills["connections"] += 1
            await self.site.close_connections()
        else:
            self.report.kills["broker"] += 1
            await self.site.node.stop()
            await asyncio.sleep(self.random.uniform(0.0, 5.0))
            await self.site.node.start()

    async def _settle(self) -> None:
        """Until nothing waits or runs any more."""
        deadline = time.monotonic() + DRAIN
        while time.monotonic() < deadline:
            self.site.revive()
            state = await self._state()
            if state is not None:
                self.report.waiting = state
                if not any(state.values()):
                    return
            await asyncio.sleep(1.0)

    async def _state(self) -> dict[str, int] | None:
        """What waits where; None while the page does not know."""
        try:
            counts = await self.site.get("/api/job-queues")
        except (httpx.HTTPError, ValueError):
            return None
        depths = [queue["ready"] for queue in counts["queues"].values()]
        known = [*depths, counts["scheduled_count"], counts["retry_count"]]
        if not depths or None in known:
            return None
        return {
            "queued": sum(depths),
            "unacked": await self._unacked(),
            "scheduled": counts["scheduled_count"],
            "retries": counts["retry_count"],
        }

    async def _unacked(self) -> int:
        async with self.site.management() as api:
            queues = (await api.get("/api/queues")).raise_for_status().json()
        return sum(q.get("messages_unacknowledged", 0) for q in queues if q["name"].startswith("queue."))

    async def _count(self) -> None:
        self.report.done = self.site.done()
        offset = 0
        while page := await self.site.get(f"/api/dead-jobs?limit=1000&offset={offset}"):
            for entry in page:
                self.report.dead[entry["jid"]] += 1
            offset += len(page)


async def chaos(folder: Path, *, seconds: float, rate: float, seed: int) -> Report:
    """One run in a folder that is there and empty; `rate` is in jobs a second."""
    return await Chaos(folder, seed).run(seconds, rate)
