"""The broker has no memory left: what the dashboard says, and what becomes of a job that ends meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from amqpjobs.broker.node import PrivateNode
from amqpjobs.jobs import Registry
from amqpjobs.settings import Settings
from tests.broker.conftest import Workers
from tests.broker.nodes import block, unblock
from tests.web.conftest import Dashboard, serving

Eventually = Callable[..., Awaitable[Any]]


async def enqueue(dashboard: Dashboard) -> httpx.Response:
    return await dashboard.client.post("/api/jobs", json={"class": "Slow"})


async def test_an_alarm_is_told_in_seconds_and_costs_no_result(
    node: PrivateNode, tmp_path: Path, eventually: Eventually
) -> None:
    """BRK-05: HTTP 503 in seconds, the page says why, a job that ends meanwhile is counted, all goes on by itself."""
    settings = Settings(url=node.url, management_url=node.management_url, state_dir=tmp_path, publish_timeout=2)
    started, may_end = asyncio.Event(), asyncio.Event()
    registry, workers = Registry(), Workers(settings)

    @registry.job(name="Slow")
    async def slow() -> None:
        started.set()
        await may_end.wait()

    async with serving(settings) as dashboard:
        await workers(registry)
        await eventually(lambda: _is(dashboard, "/health/ready", 200))
        first = (await enqueue(dashboard)).json()["jid"]
        await started.wait()
        await block(node)

        async def refused() -> bool:
            began, answer = time.monotonic(), await enqueue(dashboard)
            assert answer.status_code in {201, 202, 503}, answer.text
            return answer.status_code == 503 and time.monotonic() - began < 10 and "alarm" in answer.text

        await eventually(refused)

        async def told() -> bool:
            page = (await dashboard.get("/job-queues")).text
            return "The broker takes no new messages" in page and "takes no messages" in page

        await eventually(told)
        may_end.set()
        assert (await dashboard.get("/api/dead-jobs")).status_code == 200  # reading goes on
        await unblock(node)

        async def taken() -> bool:
            return (await enqueue(dashboard)).status_code == 201

        async def counted() -> bool:
            runs = (await dashboard.get(f"/api/jobs/{first}")).json().get("runs", ())
            return [run["status"] for run in runs] == ["success"] and not (await told())

        await eventually(taken)
        await eventually(counted)
    await workers.stop()


async def _is(dashboard: Dashboard, path: str, status: int) -> bool:
    try:
        return (await dashboard.get(path)).status_code == status
    except httpx.TransportError:
        return False
