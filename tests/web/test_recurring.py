"""The page and the list of recurring jobs on a real broker: what they show, and what their buttons do."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from tests.web.conftest import Dashboard, Publish, serving

Eventually = Callable[..., Awaitable[Any]]
ODD = "<b>\u202e" + "x" * 300


def declare(name: str, **more: Any) -> dict[str, Any]:
    job = {"class": more.pop("cls", "Report"), "args": []}
    return {"type": "recurring", "op": "declare", "name": name, "job": job, "at": time.time()} | more


@pytest.fixture
async def scheduler(settings: Settings) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    yield scheduler
    await scheduler.stop()


async def listed(dashboard: Dashboard) -> dict[str, dict[str, Any]]:
    found = (await dashboard.get("/api/recurring")).raise_for_status().json()["recurring"]
    return {each["name"]: each for each in found}


async def test_the_list_tells_ticks_zones_and_what_was_refused(
    dashboard: Dashboard, scheduler: Scheduler, publish: Publish, eventually: Eventually
) -> None:
    await publish(names.CONTROLS, declare("monthly", cron="0 0 1 * *", timezone="Europe/Rome", missed="skip"))
    await publish(names.CONTROLS, declare("often", every=1), declare("bad", every=0))

    async def ticked() -> Any:
        found = await listed(dashboard)
        return "often" in found and found["often"]["last"] and found

    found = await eventually(ticked)
    assert list(found) == ["monthly", "often"]
    monthly, often = found["monthly"], found["often"]
    assert (monthly["times"], monthly["timezone"], monthly["missed"]) == ("0 0 1 * *", "Europe/Rome", "skip")
    assert (monthly["last"], monthly["paused"], monthly["cls"]) == (None, False, "Report")
    assert monthly["next"] > time.time()
    assert often["next"] > often["last"]
    response = await dashboard.get("/api/recurring")
    assert response.headers["x-total-count"] == "2"
    assert [each["name"] for each in response.json()["refused"]] == ["bad"]


async def test_the_buttons_pause_resume_and_run(
    dashboard: Dashboard, scheduler: Scheduler, publish: Publish, page: Page, eventually: Eventually
) -> None:
    await page.goto(f"{dashboard.address}/recurring")
    await expect(page.get_by_text("No job recurs")).to_be_visible()
    await publish(names.CONTROLS, declare("yearly", cron="0 0 1 1 *", cls=ODD), declare(ODD, every=5))
    await eventually(lambda: _there(dashboard, "yearly"))
    await page.goto(f"{dashboard.address}/recurring")
    row = page.locator("tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text(ODD[:200])
    await expect(page.get_by_text("Declarations that were refused")).to_be_visible()
    await page.get_by_role("button", name="Pause: yearly").click()
    await expect(page.get_by_role("status")).to_contain_text("yearly is paused")
    await expect(row).to_contain_text("paused")
    assert (await listed(dashboard))["yearly"]["paused"]
    await page.get_by_role("button", name="Run now: yearly").click()
    await expect(page.get_by_role("status")).to_contain_text("The job of yearly was sent to its queue once")
    await page.get_by_role("button", name="Resume: yearly").click()
    await expect(page.get_by_role("status")).to_contain_text("yearly is resumed")
    assert not (await listed(dashboard))["yearly"]["paused"]
    await eventually(lambda: _ready(dashboard))
    orders = (await dashboard.get("/api/audit")).json()
    assert [each["op"] for each in reversed(orders)] == [f"{op} recurring" for op in ("pause", "run", "resume")]


async def _there(dashboard: Dashboard, name: str) -> bool:
    return name in await listed(dashboard)


async def _ready(dashboard: Dashboard) -> bool:
    """Whether the job that was run is on its queue."""
    queues = (await dashboard.figures())["queues"]
    return "default" in queues and bool(queues["default"]["ready"] == 1)


@pytest.mark.parametrize(
    ("form", "headers", "code"),
    [
        ({"op": "remove", "name": "n"}, {}, 422),
        ({"op": "pause"}, {}, 422),
        ({"op": "pause", "name": "nobody"}, {}, 404),
        ({"op": "pause", "name": "n"}, {"Sec-Fetch-Site": "cross-site"}, 403),
        ({"op": "pause", "name": "n"}, {"Origin": "http://evil.example"}, 403),
        ({"op": "pause", "name": "n"}, {}, 303),
    ],
)
async def test_who_may_order_what(
    dashboard: Dashboard,
    publish: Publish,
    eventually: Eventually,
    form: dict[str, str],
    headers: dict[str, str],
    code: int,
) -> None:
    await publish(names.CONTROLS, declare("n", every=3600))
    await eventually(lambda: _there(dashboard, "n"))
    response = await dashboard.client.post("/recurring", data=form, headers=headers)
    assert response.status_code == code
    assert (await listed(dashboard))["n"]["paused"] == (code == 303)


async def test_programs_pause_resume_and_run(
    dashboard: Dashboard, scheduler: Scheduler, publish: Publish, eventually: Eventually
) -> None:
    name = ".."  # no address can have it
    await publish(names.CONTROLS, declare(name, cron="0 0 1 1 *"))
    await eventually(lambda: _there(dashboard, name))
    for op in ("pause", "run", "resume"):
        assert (await dashboard.client.post(f"/api/recurring/~{name}/{op}")).status_code == 204
        assert (await listed(dashboard))[name]["paused"] == (op != "resume")
    await eventually(lambda: _ready(dashboard))
    assert (await dashboard.client.post("/api/recurring/nobody/run")).status_code == 404
    orders = (await dashboard.get("/api/audit")).json()
    assert [(each["op"], each["via"]) for each in reversed(orders)] == [
        (f"{op} recurring", "api") for op in ("pause", "run", "resume")
    ]


async def test_a_read_only_dashboard_has_no_buttons(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    await publish(names.CONTROLS, declare("n", every=3600))
    async with serving(settings.model_copy(update={"web_read_only": True})) as dashboard:
        await eventually(lambda: _there(dashboard, "n"))
        text = (await dashboard.get("/recurring")).text
        assert "every 3,600 s" in text
        assert "<button" not in text
        assert (await dashboard.client.post("/recurring", data={"op": "pause", "name": "n"})).status_code == 403
        assert (await dashboard.client.post("/api/recurring/n/pause")).status_code == 403
