"""Signs of life: what this process is, and what it does now, every 10 s and at each change of state."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import amqpjobs
from amqpjobs.clock import Clock
from amqpjobs.model import names, text
from amqpjobs.service import Service
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.worker.run import Run

log = logging.getLogger("amqpjobs.worker")

INTERVAL = 10.0
"""Seconds between two heartbeats; a process that is silent for 60 counts as gone."""
LISTED = 1000
"""So many running jobs are named at most."""


class Identity:
    """Who this process is. `name` is `hostname:pid:tag`, and the nonce tells apart containers that all have pid 1."""

    def __init__(self, tag: str, boot_at: float) -> None:
        self.hostname = socket.gethostname()
        self.pid = os.getpid()
        self.tag = tag
        self.nonce = secrets.token_hex(8)
        self.boot_at = boot_at
        self.name = f"{self.hostname}:{self.pid}:{tag}"


class Heartbeat(Service):
    """Appends heartbeats. Its stream has a lane of its own, so trouble with jobs does not silence it."""

    def __init__(
        self,
        link: Link,
        identity: Identity,
        *,
        concurrency: int,
        queues: Sequence[str],
        state: Callable[[], str],
        paused: Callable[[], list[str]],
        runs: Callable[[], Iterable[Run]],
        clock: Clock,
    ) -> None:
        super().__init__("heartbeat")
        self._identity = identity
        self._concurrency = concurrency
        self._queues = list(queues)
        self._state = state
        self._paused = paused
        self._runs = runs
        self._clock = clock
        self._appender = Appender(link, names.HEARTBEATS, clock=clock)
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Beat now: the state is another."""
        self._changed.set()

    async def run(self) -> None:
        """Beat at once, then every 10 s and at each change."""
        while True:
            self._changed.clear()
            await self._beat(self._entry(), timeout=INTERVAL)
            try:
                async with asyncio.timeout(INTERVAL):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def goodbye(self, timeout: float) -> None:
        """Tell that this process ended properly, so that nobody waits for it to go stale."""
        await self._beat(
            self._entry() | {"state": "stopped", "goodbye": True, "busy": 0, "running": []}, timeout=timeout
        )

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        await self.stop()
        await self._appender.close()

    async def _beat(self, entry: dict[str, Any], *, timeout: float) -> None:
        try:
            await self._appender.append([text.dump(entry)], timeout=timeout)
        except BrokerError as error:
            log.debug("a heartbeat did not get through: %s", error)

    def _entry(self) -> dict[str, Any]:
        runs = list(self._runs())
        paused = self._paused()
        entry = {
            "type": "heartbeat",
            "identity": self._identity.name,
            "nonce": self._identity.nonce,
            "hostname": self._identity.hostname,
            "pid": self._identity.pid,
            "tag": self._identity.tag,
            "boot_at": self._identity.boot_at,
            "concurrency": self._concurrency,
            "busy": len(runs),
            "beat": self._clock.wall(),
            "rss_kb": _memory(),
            "queues": self._queues,
            "version": amqpjobs.__version__,
            "state": self._state(),
            "running": [_running(run) for run in runs[:LISTED]],
        }
        return entry | {"paused": paused} if paused else entry


def _running(run: Run) -> dict[str, Any]:
    job = run.job
    return {"jid": job.jid, "class": job.cls, "queue": job.queue, "started_at": run.context.started_at}


def _memory() -> int:
    """What this process has in memory, in KiB."""
    import psutil  # noqa: PLC0415 - loaded with the first heartbeat: no job need wait for it

    return int(psutil.Process().memory_info().rss // 1024)
