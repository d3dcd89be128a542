"""The whole product on a private broker, each part a process of its own, as it runs in production."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from amqpjobs.broker.node import PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.settings import Settings
from tests.broker.programs import Program, environment

CONCURRENCY = 10


class Site:
    """A broker, two workers, two schedulers and a dashboard; whoever uses it may kill any of them."""

    def __init__(self, folder: Path) -> None:
        self.node = PrivateNode(folder / "broker")
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.web_port = free_ports(1)[0]
        self.settings = Settings(
            url=self.node.url, management_url=self.node.management_url, state_dir=folder / "state", publish_timeout=5.0
        )
        self._env = environment(self.settings) | {"CHAOS_LEDGER": str(self.ledger)}
        worker = ("-m", "amqpjobs.worker", "-A", "tests.chaos.jobs", "-q", "default", "-c", str(CONCURRENCY), "-t", "5")
        self.parts: dict[str, tuple[str, ...]] = {
            "worker 1": worker,
            "worker 2": worker,
            "scheduler 1": ("-m", "amqpjobs.scheduler"),
            "scheduler 2": ("-m", "amqpjobs.scheduler"),
            "web": ("-m", "amqpjobs.web", "--port", str(self.web_port)),
        }
        self.running: dict[str, Program] = {}

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """All of it, ready; all of it gone afterwards."""
        await self.node.start()
        try:
            for name in self.parts:
                self.begin(name)
            for program in list(self.running.values()):
                await asyncio.to_thread(program.wait_for, "ready", 60)
            yield
        finally:
            for program in self.running.values():
                program.end()
            await self.node.stop()

    def begin(self, name: str) -> None:
        self.running[name] = Program(*self.parts[name], env=self._env)

    def revive(self) -> None:
        """A part that begins while the broker is away says so and exits; whoever runs it, starts it again."""
        for name, program in list(self.running.items()):
            if not program.running:
                away = program.search("cannot reach|did not answer|inaccessible")
                assert away, f"{name} ended:\n" + "\n".join(program.lines[-20:])
                self.begin(name)

    def done(self) -> Counter[str]:
        """How often each jid ran to its end."""
        return Counter(line.split(" ")[1] for line in self.ledger.read_text().splitlines())

    async def get(self, path: str) -> Any:
        """What the dashboard's API answers."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.web_port}", timeout=30) as web:
            return (await web.get(path)).raise_for_status().json()

    def management(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.node.management_url, auth=("guest", "guest"), timeout=30)

    async def close_connections(self) -> None:
        """Force-close every connection, as an operator would."""
        async with self.management() as api:
            for connection in (await api.get("/api/connections")).raise_for_status().json():
                await api.delete(f"/api/connections/{connection['name']}")
