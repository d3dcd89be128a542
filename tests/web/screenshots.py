"""`python -m tests.web.screenshots FOLDER [SECONDS [PAGE…]]`: every page of the dashboard with plausible traffic, as
pictures, or only these pages.

On a private broker, or in a virtual host of its own of the one that AMQPJOBS_TEST_URL names. The traffic flows SECONDS
long (60) before the pictures are taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
from playwright.async_api import Browser, async_playwright, expect
from pydantic import SecretStr

from amqpjobs.broker.node import PrivateNode
from amqpjobs.clock import SystemClock
from amqpjobs.history import lag
from amqpjobs.history.lag import Lag
from amqpjobs.pipeline.tables import ROLLUPS
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Outgoing, Publisher
from tests.conftest import Broker, usual_management_url, with_credentials
from tests.pipeline import sums
from tests.web import entries
from tests.web.conftest import CHROMIUM, FLAGS, serving

WIDTHS = (1440, 1024, 390)
TRAFFIC_SECONDS = 60
PAGES = (
    "job-queues", "scheduled-jobs", "retries", "dead-jobs", "recurring", "audit", "job-metrics",
    "job-metrics/ResizeImageJob", "job-metrics/ResizeImageJob?period=1y", "worker-processes", "job-queues/default",
    "jobs/order-4711", "tracked-jobs", "jobs/16384", "api/docs",
)  # fmt: skip
CLASSES = {"SendEmailJob": ("mailers", 180), "ChargeCardJob": ("critical", 320), "ResizeImageJob": ("default", 1400)}

RECURRING: list[dict[str, Any]] = [
    {"name": "close-the-books", "cls": "CloseBooksJob", "cron": "0 3 * * *", "timezone": "Europe/Rome"},
    {"name": "hourly-report", "cls": "ReportJob", "cron": "0 * * * *", "missed": "skip", "origin": "code:shop.reports"},
    {"name": "ping", "cls": "PingJob", "every": 5, "origin": "file"},
    {"name": "reindex", "cls": "ReindexSearchJob", "every": 21_600, "paused": True},
    {"name": "typo", "cls": "PingJob", "cron": "0 25 * * *"},
]


class Wanted(NamedTuple):
    """How long traffic flows before the pictures are taken, and of which pages; none named: of all."""

    seconds: float
    places: tuple[str, ...]


class Shooting(NamedTuple):
    """Takes pictures of one page in each width and scheme."""

    browser: Browser
    folder: Path

    async def __call__(
        self, address: str, place: str, name: str, schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    ) -> None:
        for scheme in schemes:
            context = await self.browser.new_context(
                color_scheme=scheme, timezone_id="Europe/Stockholm", locale="en-US"
            )
            page = await context.new_page()
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                await page.goto(f"{address}/{place}")
                if place == "job-queues":
                    await expect(page.locator("#pulse")).to_have_text("live")
                path = self.folder / f"{re.sub('[^a-z0-9]+', '-', place.lower())}-{name}-{scheme}-{width}.png"
                await page.screenshot(path=path, full_page=True)
            await context.close()


class Traffic:
    """What producers and workers of a small shop would send."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._random = random.Random(7)

    async def send(self, stream: str, body: Any, exchange: str = "") -> None:
        await self._publisher.publish(Outgoing(json.dumps(body).encode(), exchange, stream))

    async def backlog(self) -> None:
        for count, (queue, cls) in ((1284, ("default", "ResizeImageJob")), (17, ("reports", "MonthlyReportJob"))):
            for _ in range(count):
                await self.send(queue, entries.job(cls, queue=queue), "jobs.direct")
        await self.send("scheduled_jobs", [entries.scheduled(390 + 37 * n) for n in range(1204)])
        await self.send("retries", [entries.retry(300 + 11 * n) for n in range(87)])
        for _ in range(3):
            await self.send("dead_jobs", entries.dead())
        await self._one_life()
        at = time.time() - 86_400
        await self.send("controls", [entries.recurring(at=at, **each) for each in RECURRING])
        days = [86_400 * day for day in range(1, 12) for _ in range(self._random.randint(2000, 4000))]
        await self.send("job_metrics", [self._metric(time.time() - ago) for ago in days])
        past = [self._metric(time.time() - 40 * 60 * self._random.random()) for _ in range(5000)]
        await self.send("job_metrics", past)

    async def _one_life(self) -> None:
        """A job that failed three times and died."""
        now = time.time()
        args = {
            "order": 4711,
            "amount": 123456789012345678901,
            "lines": [{"sku": "A-1", "n": 2}, {"sku": "B-7", "n": 1}],
        }
        job = entries.job(
            "ChargeCardJob", jid="order-4711", args=args, queue="critical", created_at=now - 911, tags=["vip"]
        )
        trace = 'File "shop/cards.py", line 81, in charge\n    return gateway.charge(amount)\nTimeoutError: 30 s'
        failure = {"error_class": "TimeoutError", "error_message": "the gateway did not answer within 30 s"}
        for attempt, ago in ((1, 880), (2, 500), (3, 120)):
            told = {"jid": "order-4711", "attempt": attempt, "error_class": "TimeoutError", "wait_ms": 31}
            at = {"timestamp": now - ago, "duration_ms": 30_012, "code_version": "2026.11.3"}
            await self.send(
                "job_metrics", entries.metric("failed", job_class="ChargeCardJob", queue="critical", **told, **at)
            )
        await self.send("dead_jobs", entries.dead(job, backtrace=trace, died_at=now - 120, **failure))

    async def beat(self) -> None:
        started = time.time() - 8000
        for host, pid, nonce, more in (
            ("worker-01.example.com", 21344, "a", {"busy": 7}),
            ("worker-02.example.com", 1, "b", {"busy": 10, "rss_kb": 311_200}),
            ("worker-02.example.com", 1, "c", {"busy": 2, "rss_kb": 188_000, "state": "quiet"}),
        ):
            name = {"identity": f"{host}:{pid}:production", "hostname": host, "pid": pid, "boot_at": started}
            ids = ((self._random.randbytes(12).hex(), cls, queue) for cls, (queue, _) in CLASSES.items())
            running = [{"jid": jid, "class": cls, "queue": q, "started_at": time.time() - 1.7} for jid, cls, q in ids]
            told = {**more, "running": running}
            queues = {"queues": ["critical", "mailers", "default"], "version": "2026.11.3"}
            await self.send("heartbeats", entries.heartbeat(nonce, **name, **queues, **told))

    async def flow(self) -> None:
        while True:
            await self.beat()
            for _ in range(10):
                await self.send("job_metrics", [self._metric(time.time()) for _ in range(self._random.randint(4, 14))])
                await asyncio.sleep(0.5)

    def _metric(self, at: float) -> dict[str, Any]:
        cls = self._random.choice(list(CLASSES))
        queue, mean = CLASSES[cls]
        status = "failed" if self._random.random() < 0.04 else "success"
        times = {"duration_ms": self._random.expovariate(1 / mean), "wait_ms": self._random.expovariate(1 / 40)}
        version = "2026.11.3" if at > time.time() - 15 * 60 else "2026.11.2"
        told = {"jid": self._random.randbytes(12).hex(), "code_version": version}
        return entries.metric(status, timestamp=at, job_class=cls, queue=queue, **told, **times)


async def main(folder: Path, wanted: Wanted) -> None:
    """Start all, wait until there is something to see, and take the pictures."""
    with tempfile.TemporaryDirectory() as state:
        if given := os.environ.get("AMQPJOBS_TEST_URL"):
            broker = Broker(
                with_credentials(given), os.environ.get("AMQPJOBS_TEST_MANAGEMENT_URL") or usual_management_url(given)
            )
            vhost = broker.create_vhost()
            try:
                await _linked(folder, broker.url_of(vhost), broker.management_url, Path(state), wanted)
            finally:
                broker.delete_vhost(vhost)
            return
        node = PrivateNode(Path(state) / "node")
        await node.start()
        try:
            await _linked(folder, node.url, node.management_url, Path(state), wanted)
        finally:
            await node.stop()


async def _linked(folder: Path, url: str, management_url: str, state: Path, wanted: Wanted) -> None:
    settings = Settings(url=url, management_url=management_url, state_dir=state / "state", lake_dir=state / "lake")
    link = Link(settings, "screenshots", SystemClock())
    await link.start()
    try:
        await _take(folder, settings, await link.connection(timeout=10), wanted)
    finally:
        await link.stop()


async def _take(folder: Path, settings: Settings, connection: Connection, wanted: Wanted) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        shoot = Shooting(browser, folder)
        if not wanted.places:
            async with serving(settings) as served:
                await asyncio.sleep(5)
                await shoot(served.address, "job-queues", "empty", schemes=("light",))
        await _topology(connection, settings)
        _lake(settings.lake_dir)
        traffic = Traffic(await connection.publisher())
        await traffic.backlog()
        async with serving(settings) as served:
            flowing = asyncio.create_task(traffic.flow())
            await asyncio.sleep(wanted.seconds)
            await _act(served.address)
            for place in wanted.places or PAGES:
                await shoot(served.address, place, "busy")
            flowing.cancel()
        if not wanted.places:
            await _others(shoot, settings)
        await browser.close()


async def _others(shoot: Shooting, settings: Settings) -> None:
    """Whom nobody knows yet, and what a dashboard says that has lost its broker."""
    async with serving(settings.model_copy(update={"web_token": SecretStr("t" * 20)})) as served:
        await shoot(served.address, "login", "busy")
    async with serving(settings.model_copy(update={"url": "amqp://127.0.0.1:1/"})) as served:
        await shoot(served.address, "job-queues", "away", schemes=("light",))


async def _topology(connection: Connection, settings: Settings) -> None:
    """Queues with consumers that take nothing (prefetch 1), one without, and someone who leads."""
    await topology.ensure(connection, settings)
    for queue in ("critical", "mailers", "default", "reports"):
        await topology.ensure_queue(connection, settings, queue)
    taken = ("queue.critical", "queue.mailers", "queue.default", "jobs.leader")
    for queue in taken:
        await connection.consume(queue, lambda message: None, prefetch=1)


def _lake(folder: Path) -> None:
    """Two years of it."""
    drawn, midnight = random.Random(3), time.time() // 86_400 * 86_400
    days = [midnight - 86_400 * n for n in range(700)]
    runs = [
        (day, "ResizeImageJob", "default", round(drawn.expovariate(1 / 1.4e6)), drawn.random() < 0.03)
        for day in days for _ in range(drawn.randint(20, 60))
    ]  # fmt: skip
    for name, rollup in ROLLUPS.items():
        if rollup.unit != "minute":
            sums.write(folder, name, sums.rows(runs, name))
    lag.write(folder, [Lag("job_metrics", 0, time.time(), time.time())])


async def _act(address: str) -> None:
    """Somebody was here before, and somebody's reports are under way."""
    async with httpx.AsyncClient(base_url=address, auth=("ann", ""), timeout=30) as client:
        for number in range(12):
            told = {"type": "MonthlyReport", "data": {"month": number + 1}, "tags": ["finance"], "queue": "reports"}
            (await client.post("/api/jobs", json=told)).raise_for_status()
        for progress in (100, 62.5, 20):
            taken = await client.post("/api/jobs/take", json={"type": "MonthlyReport", "worker": "worker-07:311:a"})
            held = {"X-Attempt": taken.headers["X-Attempt"]}
            said = {"progress": progress, "lines": ["read 41,200 orders", "3 of them have no customer; left out"]}
            ended = {"status": "completed", "output": {"pages": 14}} if progress == 100 else {}
            await client.patch(f"/api/jobs/{taken.json()['id']}", json=said | ended, headers=held)
        for place, action in (("retries", "delete"), ("scheduled-jobs", "trigger")):
            jobs = [{"jid": item["jid"]} for item in (await client.get(f"/api/{place}?limit=7")).json()]
            asked = {"action": action, "jobs": [*jobs, {"jid": "gone"}]}
            (await client.post(f"/api/{place}/actions", json=asked)).raise_for_status()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asked = Wanted(float(sys.argv[2]) if len(sys.argv) > 2 else TRAFFIC_SECONDS, tuple(sys.argv[3:]))
    asyncio.run(main(Path(sys.argv[1]), asked))
