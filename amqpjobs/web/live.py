"""The page's pulse: one snapshot a second for all who watch, sent to each as server-sent events when it changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.web.status import Status, status
from amqpjobs.web.throughput import Throughput
from amqpjobs.web.views import Views

EVERY = 1.0
"""Seconds between two snapshots: no page is told more often."""
FRESH = 0.5
"""Seconds for which a snapshot serves whoever asks: a hundred readers cost no more than two."""
SIGN_OF_LIFE = 10.0
"""Seconds after which a page that had no news is told that all is well, so that it can tell silence from death."""
RETRY_MS = 1000
"""What browsers are told to wait before they connect again."""

Sections = Mapping[str, str]
"""The parts of the page by name, as HTML."""


class Pulse(Service):
    """Takes the snapshots. Pages are rendered only while someone watches; the throughput is sampled always."""

    def __init__(self, views: Views, render: Callable[[Status], Sections], clock: Clock) -> None:
        super().__init__("pulse")
        self._views, self._render, self._clock = views, render, clock
        self._throughput = Throughput()
        self._status: tuple[float, Status] | None = None
        self._looking = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._published = 0.0
        self._sections: dict[str, tuple[int, bytes]] = {}
        self._changed = asyncio.Condition()
        self._watchers = 0
        self._closing = False

    async def run(self) -> None:
        """Take a snapshot a second, and tell those who watch."""
        while True:
            snapshot = await self.look(max_age=0.0)
            if self._watchers:
                await self._publish(snapshot)
            await self._clock.sleep(EVERY)

    async def look(self, max_age: float = FRESH) -> Status:
        """The snapshot, not older than `max_age` seconds."""
        async with self._looking:
            now = self._clock.steady()
            if self._status is None or now - self._status[0] > max_age:
                self._status = (self._clock.steady(), await self._snapshot())
            return self._status[1]

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events for one page: every section first, then each that changed, until `shut`."""
        self._watchers += 1
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            await self._publish(await self.look())
            seen: dict[str, int] = {}
            while not self._closing:
                fresh = {name: at for name, (at, _) in self._sections.items() if seen.get(name) != at}
                seen.update(fresh)
                yield b"".join(self._sections[name][1] for name in fresh) or event("alive", "").encode()
                await self._wait(seen)
        finally:
            self._watchers -= 1

    @property
    def closing(self) -> bool:
        """Whether event streams are to end."""
        return self._closing

    async def shut(self) -> None:
        """End all event streams: a server that stops would wait for them."""
        self._closing = True
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, seen: Mapping[str, int]) -> None:
        async with self._changed:
            if self._closing or any(seen.get(name) != at for name, (at, _) in self._sections.items()):
                return
            try:
                async with asyncio.timeout(SIGN_OF_LIFE):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _snapshot(self) -> Status:
        facts = await self._views.facts()
        if facts.runs is not None and self._views.counting:
            self._throughput.sample(facts.steady, facts.runs.total, facts.runs.failed_total)
        else:
            self._throughput.pause()
        return await asyncio.to_thread(status, facts, self._throughput.rate(), self._throughput.bars(facts.steady))

    def _written(self, snapshot: Status) -> dict[str, bytes]:
        """The sections as events, once for all who watch; in a thread, for hundreds of processes take a while."""
        return {name: event(name, html).encode() for name, html in self._render(snapshot).items()}

    async def _publish(self, snapshot: Status) -> None:
        async with self._publishing:
            if snapshot.facts.steady < self._published:
                return  # a later one was written meanwhile: counters do not go back
            self._published = snapshot.facts.steady
            await self._write(snapshot)

    async def _write(self, snapshot: Status) -> None:
        changed = False
        for name, news in (await asyncio.to_thread(self._written, snapshot)).items():
            # A section that is empty is news as well: a page may still show what an earlier process found wrong.
            at, before = self._sections.get(name, (0, None))
            if news != before:
                self._sections[name] = (at + 1, news)
                changed = True
        if changed:
            async with self._changed:
                self._changed.notify_all()


def event(name: str, data: str) -> str:
    """One server-sent event. A bare carriage return ends a line too, so text with one must not end the event."""
    lines = re.split(r"\r\n|\r|\n", data)
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
