"""A dashboard on a real broker, and a browser to look at it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from playwright.async_api import Browser, Page, async_playwright, expect

from amqpjobs.clock import Clock
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from amqpjobs.web.app import create_app
from tests.patience import PATIENCE, until

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=1000 * PATIENCE)
DAY = 86_400


@pytest.fixture(autouse=True)
async def one_day() -> None:
    """Begins no test in the last minute of a day: the pages tell of today, in UTC, and what a test published before
    midnight would be yesterday's when it looks."""
    await until(lambda: DAY - time.time() % DAY > 60)


@dataclass
class Dashboard:
    """A served dashboard: its address, and a client of it."""

    address: str
    client: httpx.AsyncClient

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.get("/api/job-queues")).raise_for_status().json()
        return found


@asynccontextmanager
async def serving(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Dashboard]:
    """Serve the dashboard on a free loopback port while the block runs."""
    app = create_app(settings, clock=clock)
    config = uvicorn.Config(
        app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1, ws="none", proxy_headers=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=address, timeout=PATIENCE) as client:
                yield Dashboard(address, client)
        finally:
            server.should_exit = True
            if hasattr(app.state, "pulse"):
                await app.state.pulse.shut()
            await task


@pytest.fixture
async def dashboard(settings: Settings, eventually: Callable[..., Awaitable[Any]]) -> AsyncIterator[Dashboard]:
    """A dashboard of the fresh virtual host, ready."""
    async with serving(settings) as served:

        async def ready() -> bool:
            try:
                return (await served.get("/health/ready")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(ready)
        yield served


Publish = Callable[..., Awaitable[None]]


@pytest.fixture
async def publish(link: Link, settings: Settings) -> AsyncIterator[Publish]:
    """`await publish(stream, entry_or_bytes, …)`, as a foreign program would: over the default exchange."""
    connection = await link.connection(timeout=PATIENCE)
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()

    async def send(stream: str, *bodies: Any) -> None:
        for body in bodies:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            await publisher.publish(Outgoing(body=raw, exchange="", routing_key=stream))

    yield send
    await publisher.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that fails its test when a script of it fails, or its policy stops something."""
    page = await browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if _bad(message.text) else None)
    yield page
    assert complaints == []


def _bad(text: str) -> bool:
    return "Content Security Policy" in text or "Refused to" in text
