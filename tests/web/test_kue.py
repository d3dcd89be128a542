"""Tracked jobs under /api/jobs: Kue's listings and priorities, Queasy's singletons, and changes as they come."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Page, expect

from tests.patience import PATIENCE
from tests.web.conftest import Dashboard
from tests.web.test_ocypod import scheduler as scheduler  # noqa: PLC0414 (a fixture)
from tests.web.test_ocypod import server as server  # noqa: PLC0414 (a fixture)

Eventually = Callable[..., Awaitable[Any]]


async def create(server: Dashboard, status: int = 201, **job: Any) -> dict[str, Any]:
    response = await server.client.post("/api/jobs", json=job)
    assert response.status_code == status, response.text
    made: dict[str, Any] = response.json()
    return made


async def ids(server: Dashboard, **wanted: Any) -> list[int]:
    return [job["id"] for job in (await server.get("/api/jobs", params=wanted)).json()]


async def listings(server: Dashboard) -> None:
    """All, by state, by type, by both; in priority order with names."""
    before = time.time() * 1000
    made = {
        name: (await create(server, type="mail", priority=name))["id"]
        for name in ("low", "normal", "medium", "high", "critical")
    }
    number = (await create(server, type="mail", priority=-7))["id"]
    later = (await create(server, type="mail", delay=3_600_000))["id"]
    other = (await create(server, type="print", data={"kissa": "ismo"}))["id"]
    order = [made["critical"], made["high"], number, made["medium"], made["normal"], made["low"]]
    assert await ids(server, state="inactive", type="mail") == order
    assert await ids(server, state="delayed") == [later]
    assert await ids(server, type="print") == [other]
    assert await ids(server) == [*order[:5], later, other, order[5]]
    assert await ids(server, limit=2, offset=1) == order[1:3]
    assert (await server.get("/api/jobs/types")).json() == ["mail", "print"]
    taken = await server.client.post("/api/jobs/take", json={"type": "mail"})
    assert taken.json()["id"] == made["critical"]
    assert await ids(server, state="active") == [made["critical"]]
    held = {"X-Attempt": taken.headers["X-Attempt"]}
    done = await server.client.patch(f"/api/jobs/{made['critical']}", json={"status": "completed"}, headers=held)
    assert done.status_code == 204
    assert await ids(server, state="complete", type="mail") == [made["critical"]]
    assert (await server.get("/api/jobs", params={"state": "none"})).status_code == 422
    assert (await server.get("/api/jobs/counts")).json() == {
        "inactive": 6, "active": 0, "complete": 1, "failed": 0, "delayed": 1, "cancelled": 0,
    }  # fmt: skip
    job = (await server.get(f"/api/jobs/{other}")).json()
    assert (job["data"], job["type"], job["state"], job["priority"]) == ({"kissa": "ismo"}, "print", "inactive", 0)
    assert before - 1 <= job["created_at"] <= job["updated_at"] <= time.time() * 1000 + 1


async def progress_output_and_log(server: Dashboard) -> None:
    job = (await create(server, queue="watched", type="w"))["id"]
    await server.client.post("/api/jobs/take", json={"queue": "watched"})
    said = {"progress": 40, "output": {"x": 1.5}, "lines": ["one", "<b>two</b>"]}
    assert (await server.client.patch(f"/api/jobs/{job}", json=said)).status_code == 204
    assert (await server.client.patch(f"/api/jobs/{job}", json={"lines": ["three"]})).status_code == 204
    shown = (await server.get(f"/api/jobs/{job}")).json()
    assert (shown["progress"], shown["output"]) == (40, {"x": 1.5})
    assert [line["line"] for line in shown["log"]] == ["one", "<b>two</b>", "three"]
    assert [line["n"] for line in (await server.get(f"/api/jobs/{job}?after=2")).json()["log"]] == [3]


async def its_page_shows_it_as_it_goes(server: Dashboard) -> None:
    job = (await create(server, queue="paged", type="Report", data={"n": 1.10}, key="k"))["id"]
    await server.client.post("/api/jobs/take", json={"queue": "paged", "worker": "<i>w</i>"})
    said = {"progress": 40, "output": {"x": "</code>"}, "lines": ["one", "<b>two</b>"]}
    await server.client.patch(f"/api/jobs/{job}", json=said)
    page = await server.get(f"/jobs/{job}")
    assert page.status_code == 200
    assert 'data-every="2000"' in page.text
    for shown in ("Report", "running", "40.0 %", "&lt;b&gt;two&lt;/b&gt;", "&lt;i&gt;w", "&lt;/code&gt;"):
        assert shown in page.text, shown
    assert "<b>two" not in page.text
    await server.client.patch(f"/api/jobs/{job}", json={"status": "failed", "error": "<u>boom", "permanent": True})
    page = await server.get(f"/jobs/{job}")
    assert "data-every" not in page.text
    assert "&lt;u&gt;boom" in page.text


async def their_page_lists_them(server: Dashboard) -> None:
    """By state, type and tag; what others wrote is text; one page after the other."""
    for number in range(52):
        await create(server, queue="many", type="Many", tags=["<b>all"] + ["odd"] * (number % 2), priority=number)
    await server.client.post("/api/jobs/take", json={"type": "Many"})
    page = (await server.get("/tracked-jobs?type=Many")).text
    assert page.count("<tr>") == 51
    assert "&lt;b&gt;all" in page and "<b>all" not in page
    assert "/tracked-jobs?type=Many&amp;offset=50" in page
    assert (await server.get("/tracked-jobs?type=Many&offset=50")).text.count("<tr>") == 3
    assert (await server.get("/tracked-jobs?type=Many&tag=odd")).text.count("<tr>") == 27
    assert (await server.get("/tracked-jobs?type=Many&state=active")).text.count("<tr>") == 2
    assert "None." in (await server.get("/tracked-jobs?tag=none")).text
    assert len(await ids(server, tag="odd", limit=1000)) == 26
    assert await ids(server, tag="odd", type="print") == []


async def singletons(server: Dashboard) -> None:
    """Queasy's ways in over HTTP: dispatch, update, blocked, cancel, evicted."""
    job = (await create(server, queue="one", key="k", data=1))["id"]
    assert (await create(server, 200, queue="one", key="k", data=2))["id"] == job
    taken = await server.client.post("/api/jobs/take", json={"queue": "one", "worker": "w"})
    assert taken.json()["data"] == 2
    assert (await server.client.post("/api/jobs/cancel", json={"queue": "one", "key": "k"})).status_code == 409
    blocked = await create(server, queue="one", key="k", data=3)
    assert (blocked["status"], blocked["state"]) == ("blocked", "delayed")
    assert (await server.client.post("/api/jobs/take", json={"queue": "one"})).status_code == 204
    assert (await server.client.post("/api/jobs/bump", json={"worker": "w"})).status_code == 204
    assert (await server.client.post("/api/jobs/bump", json={"worker": "v"})).status_code == 404
    assert (await server.client.post(f"/api/jobs/{job}/beat", headers={"X-Attempt": "x"})).status_code == 409
    failed = {"status": "failed", "error": "boom", "permanent": True}
    assert (await server.client.patch(f"/api/jobs/{job}", json=failed)).status_code == 204
    assert (await server.get(f"/api/jobs/{blocked['id']}")).json()["status"] == "queued"
    assert (await server.client.post("/api/jobs/cancel", json={"queue": "one", "key": "k"})).status_code == 204
    assert (await server.client.post("/api/jobs/cancel", json={"queue": "one", "key": "k"})).status_code == 404


async def what_cannot_be(server: Dashboard) -> None:
    for method, path, body, status in [
        ("POST", "", {"type": "t", "priority": "urgent"}, 422), ("POST", "", {"type": "t", "queue": "a/b"}, 422),
        ("POST", "", {"type": "t", "priority": -(2**53) - 1}, 422),
        ("POST", "", {"type": "t", "x": 1}, 422), ("POST", "", {"queue": "q"}, 422),
        ("POST", "", {"type": "t", "settings": {"timeout": -1}}, 422),
        ("POST", "", {"key": "k", "settings": {"x": 1}}, 422),
        ("POST", "", {"key": "k", "update_run_at": "sometimes"}, 422), ("POST", "/take", {}, 422),
        ("POST", "/take", {"queue": "none"}, 404), ("PATCH", "/7", {"status": "timed_out"}, 422),
        ("GET", "/7", None, 404), ("PATCH", "/7", {}, 404), ("DELETE", "/7", None, 404), ("POST", "/7/beat", None, 404),
        ("GET", "/x", None, 404), ("POST", "", {}, 422),
    ]:  # fmt: skip
        response = await server.client.request(method, f"/api/jobs{path}", json=body)
        assert response.status_code == status, (method, path, body, response.text)


async def a_whole_number_may_be_written_with_a_point(server: Dashboard) -> None:
    await create(server, queue="points", type="p", settings={"retries": 2.0, "max_stalls": 1.0})


async def changes_come_as_events(server: Dashboard) -> None:
    seen: list[tuple[str, str]] = []
    listening = asyncio.Event()

    async def listen() -> None:
        async with server.client.stream("GET", "/api/jobs/events") as response:
            name = ""
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name in ("job", "gone"):
                    told = json.loads(value)
                    seen.append((name, told["status"]) if name == "job" else (name, ""))
                listening.set()
                if seen and seen[-1][0] == "gone":
                    return

    task = asyncio.create_task(listen())
    async with asyncio.timeout(PATIENCE):
        await listening.wait()
        job = (await create(server, queue="told", type="w"))["id"]
        await server.client.post("/api/jobs/take", json={"queue": "told"})
        await server.client.patch(f"/api/jobs/{job}", json={"status": "completed"})
        assert (await server.client.delete(f"/api/jobs/{job}")).status_code == 204
        await task
    statuses = [status for name, status in seen if name == "job"]
    assert statuses == sorted(statuses, key=["queued", "running", "completed"].index)


async def test_tracked_jobs_over_http(server: Dashboard) -> None:
    """One server for all of it; each part has queues and types of its own."""
    for part in (
        listings,
        progress_output_and_log,
        its_page_shows_it_as_it_goes,
        their_page_lists_them,
        singletons,
        what_cannot_be,
        a_whole_number_may_be_written_with_a_point,
        changes_come_as_events,
    ):
        await part(server)


async def test_a_page_follows_a_tracked_job(server: Dashboard, page: Page) -> None:
    """Progress, log lines and the end come by themselves; the list leads to it."""
    await page.goto(f"{server.address}/tracked-jobs")
    await expect(page.get_by_text("No tracked job yet")).to_be_visible()
    job = (await create(server, queue="q", type="Report", tags=["monthly"]))["id"]
    await page.get_by_role("link", name="Report").click()  # the list showed it by itself
    assert page.url.endswith(f"/jobs/{job}")
    await page.mouse.move(0, 0)  # over a link it would hold the page still
    attempt = (await server.client.post("/api/jobs/take", json={"queue": "q", "worker": "w1"})).headers["X-Attempt"]
    for said in ({"progress": 40, "lines": ["one", "two"]}, {"progress": 90, "lines": ["three"]}):
        answer = await server.client.patch(f"/api/jobs/{job}", json=said, headers={"X-Attempt": attempt})
        assert answer.status_code == 204, answer.text
    await expect(page.get_by_role("log").get_by_role("listitem")).to_have_count(3)
    await expect(page.locator("#tracked")).to_contain_text("90.0 %")
    done = {"status": "completed", "output": {"rows": 7}}
    await server.client.patch(f"/api/jobs/{job}", json=done, headers={"X-Attempt": attempt})
    await expect(page.locator("#tracked-state")).to_have_text("completed")
    await expect(page.locator("#tracked")).to_contain_text('{"rows":7}')
    await page.set_viewport_size({"width": 1024, "height": 800})
    await page.get_by_role("link", name="monthly").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    spare = "document.getElementById('jobs').offsetWidth - document.querySelector('table').offsetWidth"
    assert await page.evaluate(spare) >= 0
