"""For whom the pages are: keyboards, screen readers, other zones and languages, and somebody who is just looking."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from playwright.async_api import Browser, Page, expect

from amqpjobs.clock import SystemClock
from amqpjobs.web.live import Pulse
from amqpjobs.web.status import status
from amqpjobs.web.views import Views
from tests.patience import PATIENCE
from tests.web import entries
from tests.web.conftest import Dashboard, Publish
from tests.web.test_ocypod import scheduler as scheduler  # noqa: PLC0414 (a fixture)
from tests.web.test_ocypod import server as server  # noqa: PLC0414 (a fixture)
from tests.web.test_parts import facts

Eventually = Callable[..., Awaitable[Any]]
PAGES = (
    "job-queues", "job-queues/default", "scheduled-jobs", "retries", "dead-jobs", "recurring", "tracked-jobs",
    "job-metrics", "job-metrics/SendEmail", "worker-processes", "audit", "jobs/j1", "api/docs",
)  # fmt: skip
FAULTS = """() => {
  const found = [];
  const told = (what, element) => found.push(what + ": " + element.outerHTML.slice(0, 120));
  const named = element => (element.getAttribute("aria-label") || element.textContent
    || (element.labels && element.labels[0] && element.labels[0].textContent) || element.title || "").trim();
  if (!document.documentElement.lang) found.push("no language");
  if (document.querySelectorAll("main").length !== 1) found.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  document.querySelectorAll("table:not(.u-legend)").forEach(table => {
    if (!table.tHead) told("a table without a head", table);
    table.querySelectorAll("thead th").forEach(th => {
      if (!["col", "colgroup"].includes(th.scope)) told("a column's head without scope", th);
    });
    table.querySelectorAll("tbody tr").forEach(row => {
      if (row.querySelectorAll("th[scope=row]").length !== 1) told("a row without a head", row);
    });
  });
  document.querySelectorAll("button, a[href], summary").forEach(each => { if (!named(each)) told("no name", each); });
  document.querySelectorAll("input:not([type=hidden]), select").forEach(each => {
    if (!named(each)) told("no label", each);
  });
  document.querySelectorAll("svg:not([role=img]), [role=img]:not([aria-label])").forEach(each => {
    if (!each.closest("[role=img][aria-label]")) told("a picture without words", each);
  });
  document.querySelectorAll("table:not(.u-legend)").forEach(table => {
    if (table.offsetWidth > table.parentElement.clientWidth) told("too wide", table);
  });
  const ids = [...document.querySelectorAll("[id]")].map(each => each.id);
  if (new Set(ids).size !== ids.length) found.push("an id twice");
  return found;
}"""
OUTLINE = """() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  return [at.outerHTML.slice(0, 100), style.outlineStyle, parseFloat(style.outlineWidth), box.width * box.height];
}"""


@pytest.fixture
async def filled(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> Dashboard:
    """Something on each page."""
    await publish("heartbeats", entries.heartbeat("a", boot_at=1_700_000_000.0))
    await publish("job_metrics", [entries.metric(job_class="SendEmail", jid="j1") for _ in range(1234)])
    await publish("scheduled_jobs", entries.scheduled(3600))
    await publish("retries", entries.retry(3600))
    await publish("dead_jobs", entries.dead(job_=entries.job(jid="j1")))
    await publish("controls", entries.recurring(name="often", cls="Ping", every=60, at=time.time()))

    async def there() -> bool:
        found = await dashboard.figures()
        return [found[name] for name in ("scheduled_count", "retry_count", "dead_count")] == [1, 1, 1]

    await eventually(there)
    return dashboard


async def test_every_page_speaks_to_a_screen_reader(filled: Dashboard, page: Page) -> None:
    await page.set_viewport_size({"width": 1024, "height": 800})
    for path in PAGES:
        await page.goto(f"{filled.address}/{path}")
        assert await page.evaluate(FAULTS) == [], path
    await page.goto(f"{filled.address}/job-queues")
    await expect(page.locator("#findings[aria-live=polite]")).to_have_count(1)
    await expect(page.get_by_role("status")).to_have_text("live")


async def test_the_keyboard_goes_everywhere_and_shows_where_it_is(filled: Dashboard, page: Page) -> None:
    await page.goto(f"{filled.address}/dead-jobs")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
    stops: list[Any] = []
    while not stops or "j1" not in stops[-1][0]:
        await page.keyboard.press("Tab")
        stops.append(await page.evaluate(OUTLINE))
        assert len(stops) < 60, stops
    assert [stop for stop in stops if stop[1] == "none" or stop[2] < 1 or stop[3] == 0] == []
    words = [stop[0] for stop in stops]
    assert [each for each in words if "/job-queues" in each or 'name="search"' in each] == [
        each for each in words if "amqpjobs</a>" in each or "Job queues" in each or 'name="search"' in each
    ]
    await page.keyboard.press("Space")  # the row's box
    await expect(page.locator("#ticked-count")).to_contain_text("With the 1 ticked")
    await page.locator("#ticked button[value=delete]").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#told")).to_contain_text("1")
    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.goto(f"{filled.address}/job-queues")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()


async def test_times_and_figures_are_the_viewers_own(filled: Dashboard, browser: Browser) -> None:
    """The viewer's zone, with the exact instant on hover; figures as the browser's language writes them."""
    context = await browser.new_context(locale="de-DE", timezone_id="America/New_York")
    page = await context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    await page.goto(f"{filled.address}/worker-processes")
    started = page.locator("time").filter(has_text="2023")
    await expect(started).to_have_text("14. Nov. 2023, 17:13")
    await expect(started).to_have_attribute("title", "2023-11-14T22:13:20.000Z")
    await page.goto(f"{filled.address}/job-queues")
    await expect(page.locator("#processed-today")).to_have_text("1.234")
    await expect(page.locator("#pulse")).to_have_text("live")
    await expect(page.locator("#processed-today")).to_have_text("1.234")  # swapped, and written once
    await context.close()


async def test_what_refreshes_itself_waits_for_who_is_at_it(server: Dashboard, page: Page) -> None:
    """Neither while text is selected nor under the pointer does a row move; then they come."""
    await server.client.post("/api/jobs", json={"type": "First"})
    await page.clock.install()
    await page.goto(f"{server.address}/tracked-jobs")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.evaluate(
        "() => { const range = document.createRange();"
        "range.selectNodeContents(document.querySelector('tbody tr')); getSelection().addRange(range); }"
    )
    await server.client.post("/api/jobs", json={"type": "Second"})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(20_000)
    await page.evaluate("getSelection().removeAllRanges()")
    await page.locator("tbody tr").hover()
    await page.clock.run_for(20_000)
    assert asked == []
    await page.mouse.move(0, 0)
    await page.clock.run_for(20_000)
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_a_late_snapshot_does_not_turn_counters_back() -> None:
    """Two are written at once where a page connects; who is overtaken says nothing."""
    pulse = Pulse(cast(Views, None), lambda found: {"totals": str(found.facts.steady)}, SystemClock())
    early, late = (status(facts(steady=at)) for at in (10.0, 11.0))
    await pulse._publish(late)
    await pulse._publish(early)
    assert pulse._sections["totals"] == (1, b"event: totals\ndata: 11.0\n\n")
