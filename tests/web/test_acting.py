"""Acting on jobs that wait, over HTTP, on a real broker: the codes, the verdicts, who may, and the buttons."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Page, expect
from pydantic import SecretStr

from amqpjobs.clock import SystemClock
from amqpjobs.model import control, names, text
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.append import Appender
from amqpjobs.streams.link import Link
from tests.patience import PATIENCE
from tests.web import entries
from tests.web.conftest import Dashboard, Publish, serving

Eventually = Callable[..., Awaitable[Any]]
PATHS = {names.SCHEDULED: "/api/scheduled-jobs", names.RETRIES: "/api/retries", names.DEAD: "/api/dead-jobs"}


def made(make: Callable[..., dict[str, Any]], *jids: str, **more: Any) -> list[dict[str, Any]]:
    return [make(job_=entries.job(jid=jid, **more)) for jid in jids]


class Visitor:
    """Somebody at the dashboard, with a broker behind it."""

    def __init__(self, dashboard: Dashboard, publish: Publish, eventually: Eventually) -> None:
        self.dashboard, self._publish, self._eventually = dashboard, publish, eventually

    async def puts(self, stream: str, found: list[dict[str, Any]]) -> None:
        """Publish, and wait until the dashboard shows them."""
        await self._publish(stream, found)
        jids = {entry["jid"] for entry in found}

        async def there() -> bool:
            return jids <= set(await self.listed(stream))

        await self._eventually(there)

    async def listed(self, stream: str) -> list[str]:
        response = await self.dashboard.get(PATHS[stream], params={"limit": 1000})
        return [item["jid"] for item in response.json()]

    async def does(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.dashboard.client.request(method, path, **more)

    async def code(self, method: str, path: str, **more: Any) -> int:
        return (await self.does(method, path, **more)).status_code


@pytest.fixture
def visitor(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> Visitor:
    return Visitor(dashboard, publish, eventually)


@pytest.fixture
async def scheduler(settings: Settings, visitor: Visitor) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    yield scheduler
    await scheduler.stop()


async def test_one_job_at_a_time(visitor: Visitor) -> None:
    """Done is 204, what is not there is 404; nobody leads here, so what was triggered stays."""
    await visitor.puts(names.SCHEDULED, made(entries.scheduled, "s1", "a/b c", "s3"))
    await visitor.puts(names.RETRIES, made(entries.retry, "r1", "r2", "r3"))
    await visitor.puts(names.DEAD, made(entries.dead, "d1", "d2"))
    for method, path in (
        ("DELETE", "/api/scheduled-jobs/s1"),
        ("DELETE", "/api/scheduled-jobs/a%2Fb%20c"),
        ("POST", "/api/scheduled-jobs/s3/trigger?entry="),
        ("DELETE", "/api/retries/r1"),
        ("POST", "/api/retries/r2/retry"),
        ("POST", "/api/retries/r3/kill"),
        ("DELETE", "/api/dead-jobs/d1"),
        ("POST", "/api/dead-jobs/d2/retry"),
    ):
        response = await visitor.does(method, path)
        assert (response.status_code, response.content) == (204, b""), (path, response.text)
        other = path.replace("s1", "none").replace("a%2Fb%20c", "none")
        for jid in ("s3", "r1", "r2", "r3", "d1", "d2"):
            other = other.replace(jid, "none")
        refused = await visitor.does(method, other)
        assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")
    assert await visitor.listed(names.SCHEDULED) == ["s3"]
    at = time.time() + 7200
    assert await visitor.code("POST", "/api/retries/r2/reschedule", json={"at": at}) == 204
    assert await visitor.code("POST", "/api/scheduled-jobs/s3/reschedule", json={"at": "2099-01-01T00:00:00Z"}) == 204
    assert await visitor.code("POST", "/api/scheduled-jobs/s1/restore") == 204
    assert await visitor.code("POST", "/api/scheduled-jobs/s1/restore") == 404
    assert set(await visitor.listed(names.SCHEDULED)) == {"s1", "s3"}


IMPOSSIBLE: tuple[tuple[str, str, Any, int], ...] = (
    ("DELETE", "/api/none/j", None, 404),
    ("POST", "/api/none/actions", {"action": "delete", "all": True}, 404),
    ("POST", "/api/dead-jobs/j/reschedule", {"at": 1}, 405),
    ("POST", "/api/retries/j/reschedule", {"at": "soon"}, 422),
    ("POST", "/api/retries/j/reschedule", {}, 422),
    ("POST", "/api/retries/actions", {"action": "vanish", "all": True}, 422),
    ("POST", "/api/retries/actions", {"action": "requeue", "all": True}, 422),
    ("POST", "/api/retries/actions", {"action": "delete"}, 422),
    ("POST", "/api/retries/actions", {"action": "delete", "all": True, "jobs": [{"jid": "j"}]}, 422),
    ("POST", "/api/retries/actions", {"action": "delete", "jobs": [{"jid": "j"}], "queue": "low"}, 422),
    ("POST", "/api/retries/actions", {"action": "delete", "jobs": [{"jid": "j"}], "q": "low"}, 422),
    ("POST", "/api/retries/actions", {"action": "delete", "jobs": [{"jid": ""}]}, 422),
    ("POST", "/api/retries/actions", {"action": "restore", "all": True}, 422),
    ("POST", "/api/actions/none/undo", None, 404),
    ("GET", "/api/actions/none", None, 404),
)


async def test_what_cannot_be_is_a_problem(visitor: Visitor) -> None:
    for method, path, body, status in IMPOSSIBLE:
        response = await visitor.does(method, path, json=body)
        assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), path


async def test_many_and_all_that_match_and_undo(visitor: Visitor, eventually: Eventually) -> None:
    await visitor.puts(names.DEAD, made(entries.dead, *(f"d{n}" for n in range(20))))
    await visitor.puts(names.DEAD, made(entries.dead, "low1", "low2", queue="low", tags=["odd"]))
    jobs = [{"jid": "d0"}, {"jid": "none"}, {"jid": "d1"}]
    response = await visitor.does("POST", "/api/dead-jobs/actions", json={"action": "delete", "jobs": jobs})
    found = response.json()
    assert response.status_code == 200
    assert [job["verdict"] for job in found["jobs"]] == ["done", "not_found", "done"]
    assert (found["asked"], found["done"], found["not_found"], found["conflict"], found["unknown"]) == (3, 2, 1, 0, 0)
    every = {"action": "delete", "all": True, "queue": "low", "tag": "odd"}
    none = (await visitor.does("POST", "/api/dead-jobs/actions", json=every | {"q": "nowhere"})).json()
    assert none["asked"] == 0
    all_low = (await visitor.does("POST", "/api/dead-jobs/actions", json=every)).json()
    assert (all_low["asked"], all_low["done"]) == (2, 2)
    assert set(await visitor.listed(names.DEAD)) == {f"d{n}" for n in range(2, 20)}
    undone = await visitor.does("POST", f"/api/actions/{all_low['action']}/undo")
    assert (undone.status_code, undone.json()["done"]) == (200, 2)
    assert {"low1", "low2"} <= set(await visitor.listed(names.DEAD))
    assert (await visitor.does("GET", f"/api/actions/{found['action']}")).json() == found
    listed = await visitor.does("GET", "/api/audit")
    assert [(a["op"], a["in"], a["where"], a["done"], a["via"], a["by"]) for a in listed.json()] == [
        ("restore", "dead_jobs", "", 2, "api", "dashboard"),
        ("delete", "dead_jobs", "queue=low tag=odd", 2, "api", "dashboard"),
        ("delete", "dead_jobs", "", 2, "api", "dashboard"),
    ]
    assert listed.headers["x-total-count"] == "3"


async def test_a_claimed_job_is_a_conflict(visitor: Visitor, link: Link) -> None:
    """The test leads by hand: it claims, and does not settle."""
    await visitor.puts(names.SCHEDULED, made(entries.scheduled, "claimed"))
    [item] = (await visitor.does("GET", "/api/scheduled-jobs")).json()
    leader = Appender(link, names.SCHEDULED, clock=SystemClock())
    for entry in (
        control.write_epoch("E", at=1.0),
        control.write_term("E", 7, by="test", at=1.0),
        control.write_claimed("E", 7, [item["entry"]]),
    ):
        await leader.append([text.dump(entry)], timeout=PATIENCE)
    await leader.close()
    response = await visitor.does("DELETE", "/api/scheduled-jobs/claimed", params={"entry": item["entry"]})
    assert (response.status_code, response.headers["content-type"]) == (409, "application/problem+json")
    assert await visitor.code("POST", "/api/scheduled-jobs/claimed/trigger") == 409


async def test_a_dead_job_is_run_again_by_the_scheduler(
    visitor: Visitor, scheduler: Scheduler, eventually: Eventually, link: Link
) -> None:
    await topology.ensure_queue(await link.connection(), link.settings, "default")
    await visitor.puts(names.DEAD, made(entries.dead, "d1"))
    assert await visitor.code("POST", "/api/dead-jobs/d1/retry") == 204

    async def gone() -> bool:
        return await visitor.listed(names.DEAD) == []

    await eventually(gone)

    async def queued() -> bool:
        return bool((await visitor.dashboard.figures())["queues"].get("default", {}).get("ready") == 1)

    await eventually(queued)


async def test_what_the_cap_dropped_is_told(
    settings: Settings, visitor: Visitor, eventually: Eventually, page: Page
) -> None:
    await visitor.puts(names.DEAD, made(entries.dead, *(f"d{n}" for n in range(8))))
    scheduler = Scheduler(settings.model_copy(update={"dead_max": 5}), SystemClock())
    await scheduler.start()
    try:

        async def told() -> bool:
            found = await visitor.dashboard.figures()
            return (found["dead_count"], found["dead_dropped"]) == (5, 3)

        await eventually(told)
        await page.goto(f"{visitor.dashboard.address}/dead-jobs")
        await expect(page.locator("#list")).to_contain_text("3 dropped so far")
    finally:
        await scheduler.stop()


# Who may.


async def test_what_another_site_sends_is_refused_and_nothing_is_done(visitor: Visitor) -> None:
    await visitor.puts(names.DEAD, made(entries.dead, "d1"))
    form, here = {"action": "delete", "jid": "d1"}, visitor.dashboard.address
    foreign: list[dict[str, str]] = [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", "Origin": here},
    ]  # fmt: skip
    for sent in foreign:
        assert await visitor.code("DELETE", "/api/dead-jobs/d1", headers=sent) == 403
        assert await visitor.code("POST", "/dead-jobs", data=form, headers=sent) == 403
        assert await visitor.code("GET", "/api/dead-jobs", headers=sent) == 200
        assert await visitor.listed(names.DEAD) == ["d1"]
    own = {"Origin": here}
    assert await visitor.code("DELETE", "/api/dead-jobs/d1", headers=own) == 204


async def test_a_body_without_bounds_is_refused(visitor: Visitor) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{}"

    assert await visitor.code("POST", "/api/dead-jobs/actions", content=endless()) == 411
    assert await visitor.code("POST", "/api/dead-jobs/actions", content=b" " * (4 * 1024 * 1024 + 1)) == 413


async def test_who_it_was_is_on_record_and_a_wrong_token_does_nothing(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    guarded = settings.model_copy(update={"web_token": SecretStr("s3cret")})
    async with serving(guarded) as served:
        served.client.auth = httpx.BasicAuth("ann", "s3cret")
        visitor = Visitor(served, publish, eventually)
        await visitor.puts(names.DEAD, made(entries.dead, "d1", "d2"))
        wrong = httpx.BasicAuth("ann", "wrong")
        assert await visitor.code("DELETE", "/api/dead-jobs/d1", auth=wrong) == 401
        assert await visitor.code("DELETE", "/api/dead-jobs/d1") == 204
        assert await visitor.code("POST", "/dead-jobs", data={"action": "delete", "jid": "d2"}) == 303
        told = (await visitor.does("GET", "/api/audit")).json()
        assert [(a["by"], a["via"]) for a in told] == [("ann", "web"), ("ann", "api")]


async def test_a_dashboard_that_only_shows_refuses_and_has_no_buttons(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    async with serving(settings.model_copy(update={"web_read_only": True})) as served:
        visitor = Visitor(served, publish, eventually)
        await visitor.puts(names.DEAD, made(entries.dead, "d1"))
        assert await visitor.code("DELETE", "/api/dead-jobs/d1") == 403
        assert await visitor.code("POST", "/dead-jobs", data={"action": "delete", "jid": "d1"}) == 403
        shown = (await visitor.does("GET", "/dead-jobs")).text
        assert "d1" in shown
        assert 'method="post"' not in shown
        assert "<button name" not in shown
        assert await visitor.listed(names.DEAD) == ["d1"]


async def test_while_the_broker_is_away_nothing_is_promised(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    """The dashboard is told of a broker that does not answer."""
    nowhere = settings.model_copy(update={"url": "amqp://127.0.0.1:1/", "publish_timeout": 0.5})
    async with serving(nowhere) as served:
        response = await served.client.request("DELETE", "/api/dead-jobs/d1")
        assert (response.status_code, response.json()["title"]) == (503, "Not done")
        every = {"action": "delete", "all": True}
        assert (await served.client.post("/api/dead-jobs/actions", json=every)).status_code == 503


# The buttons.


@pytest.fixture
async def plain(browser: Any) -> AsyncIterator[Page]:
    """A page without JavaScript."""
    context = await browser.new_context(java_script_enabled=False)
    yield await context.new_page()
    await context.close()


async def test_the_buttons_work_without_javascript(visitor: Visitor, plain: Page) -> None:
    await visitor.puts(names.RETRIES, made(entries.retry, "r1", "r2", "r3"))
    await plain.goto(f"{visitor.dashboard.address}/retries")
    await expect(plain.locator("tbody tr")).to_have_count(3)
    await plain.get_by_role("button", name="Delete: r2").click()
    await expect(plain.locator("#told")).to_contain_text("Deleted 1 job.")
    await expect(plain.locator("tbody tr")).to_have_count(2)
    await plain.get_by_role("button", name="Undo").click()
    assert plain.url.partition("?")[0].endswith("/audit")
    await expect(plain.locator("#told")).to_contain_text("Restored 1 job.")
    await expect(plain.locator("tbody tr")).to_have_count(2)
    await plain.get_by_role("link", name="Retries").click()
    await expect(plain.locator("tbody tr")).to_have_count(3)
    await plain.locator("summary", has_text="Delete: all").click()
    await plain.get_by_role("button", name="Delete: all 3 jobs").click()
    await expect(plain.locator("#told")).to_contain_text("Deleted 3 jobs.")
    await expect(plain.locator("#list")).to_contain_text("No job waits to be tried again.")


async def test_a_button_for_a_job_that_is_gone_says_so(visitor: Visitor, page: Page) -> None:
    await visitor.puts(names.SCHEDULED, made(entries.scheduled, "s1"))
    await page.goto(f"{visitor.dashboard.address}/scheduled-jobs")
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert await visitor.code("DELETE", "/api/scheduled-jobs/s1") == 204
    await page.get_by_role("button", name="Run now: s1").click()
    await expect(page.locator("#told")).to_contain_text("Triggered 0 jobs. 1 not found.")


async def test_what_others_wrote_is_inert_on_these_pages(visitor: Visitor, page: Page) -> None:
    """UI-01."""
    hostile = "<img src=x onerror=alert(1)>"
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    job = entries.job(hostile, jid=hostile, queue=hostile, args=[hostile], tags=[hostile])
    failure: dict[str, Any] = {"error_message": hostile, "error_class": hostile, "backtrace": hostile}
    await visitor.puts(names.DEAD, [entries.dead(job, **failure)])
    address = visitor.dashboard.address
    named = quote(hostile, safe="")
    for path in (
        f"jobs/{named}", f"job-metrics/{named}", f"tracked-jobs?tag={named}", f"dead-jobs?search={named}",
        f"retries?error={named}",
    ):  # fmt: skip
        await page.goto(f"{address}/{path}")
        assert "onerror=alert(1)" in await page.locator("main").inner_html()
        assert await page.locator("img").count() == 0
    await page.goto(f"{visitor.dashboard.address}/dead-jobs")
    await expect(page.locator("tbody tr")).to_contain_text(hostile)
    await page.get_by_role("button", name="Delete: <img").click()
    await expect(page.locator("#told")).to_contain_text("Deleted 1 job.")
    await page.goto(f"{visitor.dashboard.address}/audit?action={hostile}")
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert await page.locator("img").count() == 0
    assert dialogs == []


async def test_queues_of_any_name_are_found_and_their_jobs_deleted(visitor: Visitor) -> None:
    """UI-02: what no queue may be called is refused at creation, and a dead job that says so is no trouble."""
    odd = ["a/b", "x#y", "q?1", "ü", "..", "%2F"]
    await visitor.puts(names.DEAD, [entries.dead(entries.job(jid=f"j{n}", queue=name)) for n, name in enumerate(odd)])
    get, client = visitor.dashboard.get, visitor.dashboard.client
    for n, name in enumerate(odd):
        found = await get("/api/dead-jobs", params={"queue": name})
        assert [each["jid"] for each in found.json()] == [f"j{n}"]
        assert f"j{n}" in (await get("/dead-jobs", params={"queue": name})).text
        assert await visitor.code("DELETE", f"/api/dead-jobs/j{n}") == 204
        made = await client.post("/api/jobs", json={"class": "A", "queue": name})
        assert made.status_code == (201 if name == ".." else 422)
        assert (await get(f"/job-queues/{quote(name, safe='')}")).status_code in {200, 302, 404}


async def test_pages_of_rows(visitor: Visitor, page: Page) -> None:
    await visitor.puts(names.DEAD, made(entries.dead, *(f"d{n}" for n in range(120))))
    await page.goto(f"{visitor.dashboard.address}/dead-jobs")
    await expect(page.locator("tbody tr")).to_have_count(50)
    await page.get_by_role("link", name="Later rows").click()
    await page.get_by_role("link", name="Later rows").click()
    await expect(page.locator("tbody tr")).to_have_count(20)
    await expect(page.locator("#list")).to_contain_text("120 jobs")
    assert await page.locator(".paging a").all_text_contents() == ["First rows"]
