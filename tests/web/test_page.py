"""The page in a browser, on a real broker: live, inert, and truthful about what it does not know."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from asyncio import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from amqpjobs.broker.node import PrivateNode
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from amqpjobs.web.pages import SECTIONS
from tests.web import entries
from tests.web.conftest import Dashboard, Publish, serving

Eventually = Callable[..., Awaitable[Any]]
PAYLOAD = "<img src=x onerror=alert(1)>"


async def test_counts_change_by_themselves(dashboard: Dashboard, publish: Publish, page: Page) -> None:
    await page.goto(dashboard.address)
    assert page.url.endswith("/job-queues")
    await expect(page.locator("#processed-today")).to_have_text("0")
    await expect(page.locator("#processes")).to_contain_text("python -m amqpjobs.worker")
    await page.evaluate("window.notReloaded = true")

    await publish("job_metrics", entries.metric(), [entries.metric(), entries.metric("failed", queue="critical")])
    await publish("scheduled_jobs", entries.scheduled(), entries.scheduled())
    await publish("retries", entries.retry())
    await publish("dead_jobs", entries.dead())
    await publish("heartbeats", entries.heartbeat("a"))

    await expect(page.locator("#processed-today")).to_have_text("3")
    await expect(page.locator("#failed-today")).to_have_text("1")
    await expect(page.locator("#scheduled")).to_have_text("2")
    await expect(page.locator("#retries")).to_have_text("1")
    await expect(page.locator("#dead")).to_have_text("1")
    await expect(page.locator("#busy")).to_have_text("3")
    await expect(page.locator("#processes tbody tr")).to_have_count(1)
    await expect(page.locator("#processes tbody")).to_contain_text("worker-01:1")
    await expect(page.locator("#queues tbody")).to_contain_text("critical")
    await expect(page.locator("#rate")).not_to_have_text("–")
    assert await page.evaluate("window.notReloaded") is True


async def test_nothing_that_others_write_is_taken_for_html(dashboard: Dashboard, publish: Publish, page: Page) -> None:
    """UI-01, as far as this page shows foreign text."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    hostile = entries.job(PAYLOAD, args=[PAYLOAD], tags=[PAYLOAD], queue=PAYLOAD)
    failure: dict[str, Any] = {"error_message": PAYLOAD, "error_class": PAYLOAD, "backtrace": PAYLOAD}
    await page.goto(dashboard.address)
    await publish(
        "heartbeats",
        entries.heartbeat(
            "a\rdata: x", identity=PAYLOAD, hostname=PAYLOAD, tag=PAYLOAD, queues=[PAYLOAD], version=PAYLOAD + "\r\n\rx"
        ),
    )
    await publish("job_metrics", entries.metric(job_class=PAYLOAD, queue=PAYLOAD, worker_identity=PAYLOAD))
    await publish("scheduled_jobs", entries.scheduled(job_=hostile))
    await publish("retries", entries.retry(job_=hostile, **failure))
    await publish("dead_jobs", entries.dead(job_=hostile, **failure))

    await expect(page.locator("#dead")).to_have_text("1")
    await expect(page.locator("#processes tbody")).to_contain_text(PAYLOAD)
    await page.reload()
    await expect(page.locator("#processes tbody")).to_contain_text(PAYLOAD)
    assert await page.locator("img").count() == 0
    assert dialogs == []


async def test_days_are_shown_once_there_are_several(dashboard: Dashboard, publish: Publish, page: Page) -> None:
    await page.goto(dashboard.address)
    await publish("job_metrics", entries.metric())
    await expect(page.locator("#processed-today")).to_have_text("1")
    await expect(page.locator("#history")).to_be_hidden()
    await publish("job_metrics", [entries.metric("failed", timestamp=time.time() - 3 * 86_400) for _ in range(4)])
    await expect(page.locator("#history g")).to_have_count(4)
    assert "4 ran, 4 failed" in (await page.locator("#history g title").all_text_contents())[0]
    assert "1 ran, 0 failed" in (await page.locator("#history g title").all_text_contents())[-1]


async def test_what_is_wrong_is_said_in_words(dashboard: Dashboard, publish: Publish, link: Link, page: Page) -> None:
    await page.goto(dashboard.address)
    await expect(page.locator("#findings")).to_contain_text("No scheduler is running")
    await publish("scheduled_jobs", entries.scheduled(due_in=60))
    await expect(page.locator("#findings li.wrong")).to_contain_text("1 job will not leave when due")


async def test_links_and_assets_are_all_there_and_ours(dashboard: Dashboard, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(dashboard.address)
    await expect(page.locator("#pulse")).to_have_text("live")
    assert all(url.startswith(dashboard.address) for url in asked)
    for href in await page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
        assert (await dashboard.get(href)).status_code == 200
    # Everything that the page asked for was there, too: its scripts ran, and it has its style.
    assert await page.evaluate("typeof htmx") == "object"
    assert await page.evaluate("getComputedStyle(document.querySelector('.totals')).display") == "grid"


async def test_a_page_that_connects_is_told_every_part_even_the_empty_ones(dashboard: Dashboard, page: Page) -> None:
    """Or a page that outlived its server would go on showing what that one had found wrong."""
    await page.goto(dashboard.address)
    told = set()
    async with dashboard.client.stream("GET", "/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            told |= {line.removeprefix("event: ")} if line.startswith("event: ") else set()
            if told >= {*SECTIONS}:
                break
    assert {*SECTIONS} == set(await page.eval_on_selector_all("[sse-swap]", "all => all.map(each => each.id)"))


async def test_it_fits_a_phone(dashboard: Dashboard, publish: Publish, page: Page) -> None:
    await publish("heartbeats", entries.heartbeat("a", hostname="a-rather-long-host-name-" * 4))
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(dashboard.address)
    await expect(page.locator("#processes tbody tr")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_selected_text_is_left_alone_until_it_is_let_go(
    dashboard: Dashboard, publish: Publish, page: Page
) -> None:
    await page.goto(dashboard.address)
    await expect(page.locator("#pulse")).to_have_text("live")
    await page.evaluate("getSelection().selectAllChildren(document.getElementById('processed-today'))")
    await publish("job_metrics", entries.metric())
    await publish("heartbeats", entries.heartbeat("a"))
    await expect(page.locator("#processes tbody tr")).to_have_count(1)
    await expect(page.locator("#processed-today")).to_have_text("0")
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(page.locator("#processed-today")).to_have_text("1")


async def test_nothing_moves_under_the_pointer_and_the_focus_stays(
    dashboard: Dashboard, publish: Publish, page: Page
) -> None:
    """A queue's link stays while it is pointed at, and keeps the keyboard's focus when its row is renewed."""
    await publish("job_metrics", entries.metric(queue="mail"))
    await page.goto(dashboard.address)
    rows, link = page.locator("#queues tbody tr"), page.get_by_role("link", name="mail")
    await link.hover()
    before = await rows.count()
    await publish("job_metrics", entries.metric(queue="another"))
    await expect(page.locator("#processed-today")).to_have_text("2")
    await expect(rows).to_have_count(before)
    await page.mouse.move(0, 0)
    await expect(rows).to_have_count(before + 1)
    await link.focus()
    await publish("job_metrics", entries.metric(queue="mail"))
    await expect(rows.filter(has_text="mail").locator("td[data-label='Ran, 1 h']")).to_have_text("2")
    await expect(link).to_be_focused()


async def test_it_survives_a_restart_of_the_broker(
    node: PrivateNode, tmp_path: Path, page: Page, eventually: Eventually
) -> None:
    """BRK-01: it says that the broker is away, keeps what it knew, and goes on by itself within 15 s."""
    settings = Settings(url=node.url, management_url=node.management_url, state_dir=tmp_path)
    async with serving(settings) as served:
        await page.goto(served.address)
        await expect(page.locator("#health")).to_contain_text("RabbitMQ")
        await node.stop()
        await expect(page.locator("#findings li.wrong")).to_contain_text("No connection to the broker")
        assert (await served.get("/health/ready")).status_code == 503
        assert (await served.get("/health/live")).status_code == 200
        await node.start()
        await expect(page.locator("#health")).not_to_contain_text("not connected")

        async def ready() -> bool:
            return (await served.get("/health/ready")).status_code == 200

        await eventually(ready)


@asynccontextmanager
async def web_process(settings: Settings, port: int) -> AsyncIterator[subprocess.Process]:
    """`python -m amqpjobs.web`, past its ready line."""
    environment = {
        **os.environ,
        "AMQPJOBS_URL": settings.url,
        "AMQPJOBS_MANAGEMENT_URL": settings.management_url or "",
        "AMQPJOBS_STATE_DIR": str(settings.state_dir),
    }
    process = await subprocess.create_subprocess_exec(
        sys.executable, "-m", "amqpjobs.web", "--port", str(port), env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        while not re.search(rb"web ready: http://127\.0\.0\.1:\d+/job-queues", line := await process.stderr.readline()):
            assert line, "it ended without a ready line"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_survives_a_restart_of_its_own_server(settings: Settings, publish: Publish, page: Page) -> None:
    """Killed with SIGKILL in the middle: the page says so, connects again by itself, and nothing is counted twice."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    await publish("job_metrics", entries.metric(), entries.metric())
    async with web_process(settings, port) as process:
        await page.goto(f"http://127.0.0.1:{port}/job-queues")
        await expect(page.locator("#processed-today")).to_have_text("2")
        process.send_signal(signal.SIGKILL)
        await expect(page.locator("#pulse")).to_contain_text("not live since")
        await publish("job_metrics", entries.metric("failed"))
    async with web_process(settings, port) as process:
        await expect(page.locator("#processed-today")).to_have_text("3")
        await expect(page.locator("#failed-today")).to_have_text("1")
        await expect(page.locator("#pulse")).to_have_text("live")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
