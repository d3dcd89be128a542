"""Searching the delayed sets: over JSON and on the pages, which need no JavaScript."""

from __future__ import annotations

import ast
import asyncio
import math
import re
import shlex
import time
from collections.abc import Awaitable, Callable
from html import unescape
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from amqpjobs import cli
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.settings import Settings
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan
from tests.web import entries
from tests.web.conftest import Dashboard, Publish

Eventually = Callable[..., Awaitable[Any]]
COUNT = 120


@pytest.fixture
async def filled(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> list[dict[str, Any]]:
    """Failed jobs of two classes, in the dashboard and in its index of words."""
    made = [
        entries.retry(
            60.0 + n,
            entries.job(("Mailer", "Billing::Charge")[n % 2], args=[f"user{n}@example.com"], tags=[f"t{n % 3}"]),
            error_message=f"host{n % 5} <b>refused</b>",
        )
        for n in range(COUNT)
    ]
    await publish("retries", made)

    async def indexed() -> bool:
        found = await dashboard.get("/api/retries", params={"q": "example.com", "limit": 1})
        return found.headers["X-Total-Count"] == str(COUNT) and "X-Indexed-Up-To" not in found.headers

    await eventually(indexed)
    return made


async def listed(dashboard: Dashboard, **search: Any) -> tuple[list[str], httpx.Headers]:
    found = (await dashboard.get("/api/retries", params=search)).raise_for_status()
    return [each["jid"] for each in found.json()], found.headers


async def test_the_list_is_searched_sorted_and_turned(dashboard: Dashboard, filled: list[dict[str, Any]]) -> None:
    jids = [each["jid"] for each in filled]
    assert (await listed(dashboard, q="user17@example"))[0] == [jids[17]]
    assert (await listed(dashboard, q=jids[3][:10]))[0] == [jids[3]]
    found, headers = await listed(dashboard, **{"class": "Mailer", "sort": "-due", "limit": 1000})
    assert found == jids[::2][::-1]
    assert headers["X-Total-Count"] == str(COUNT // 2)
    assert (await listed(dashboard, tag="t1", q="host0 charge", limit=1000))[0] == [
        jid for n, jid in enumerate(jids) if (n % 3, n % 5, n % 2) == (1, 0, 1)
    ]
    first, headers = await listed(dashboard, sort="jid", limit=70)
    rest, last = await listed(dashboard, sort="jid", limit=70, after=headers["X-Next-After"])
    assert [*first, *rest] == sorted(jids)
    assert "X-Next-After" not in last
    assert (await listed(dashboard, queue="nobody"))[0] == []


async def test_what_cannot_be_asked_for_is_told(dashboard: Dashboard) -> None:
    for wrong, status in (
        ({"sort": "raw"}, 422),
        ({"after": "x"}, 404),
        ({"limit": 5000}, 422),
        ({"q": "x" * 501}, 422),
    ):
        answer = await dashboard.get("/api/retries", params=wrong)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert next(iter(wrong)) in answer.json()["detail"]


async def test_the_page_searches_without_javascript(
    dashboard: Dashboard, filled: list[dict[str, Any]], browser: Browser
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{dashboard.address}/retries")
    assert await page.locator("tbody tr").count() == 50
    await page.fill("input[name=search]", "host1 charge")
    await page.click(".search button")
    assert "search=host1" in page.url
    expected = [each["jid"] for n, each in enumerate(filled) if (n % 5, n % 2) == (1, 1)]
    rows = await page.locator("tbody tr th small").all_inner_texts()
    assert [row.split(" ")[0] for row in rows] == expected
    assert await page.locator("#matching").inner_text() == "12 matches"
    assert await page.input_value("input[name=search]") == "host1 charge"
    await context.close()


async def test_the_next_page_goes_on_where_this_one_ends(dashboard: Dashboard, filled: list[dict[str, Any]]) -> None:
    seen: list[str] = []
    path: str | None = "/retries?sort=-due&class="
    while path is not None:
        body = (await dashboard.get(path)).raise_for_status().text
        seen += [part.split('"')[0] for part in body.split('name="jid" value="')[1:]]
        link = body.partition('" rel="next">')[0]
        path = unescape(link.rpartition('href="')[2]) if link != body else None
    assert seen == [each["jid"] for each in filled][::-1]


async def test_what_others_wrote_is_text_on_the_page(dashboard: Dashboard, filled: list[dict[str, Any]]) -> None:
    body = (await dashboard.get("/retries", params={"q": '"><script>alert(1)</script>'})).text
    assert "<script>alert" not in body
    assert "&lt;script&gt;" in body
    assert "<b>refused</b>" not in (await dashboard.get("/retries")).text


@pytest.mark.parametrize("path", ["/scheduled-jobs", "/retries", "/dead-jobs"])
async def test_an_empty_list_says_so_and_a_wrong_question_too(dashboard: Dashboard, path: str) -> None:
    empty = await dashboard.get(path, params={"q": "nothing"})
    assert empty.status_code == 200
    assert "<p>None.</p>" in empty.text
    assert f'href="{path}" aria-current="page"' in empty.text
    wrong = await dashboard.get(path, params={"sort": "raw"})
    assert wrong.status_code == 422
    assert "sort must be one of" in wrong.text


@pytest.mark.parametrize("path", ["/scheduled-jobs", "/retries", "/dead-jobs"])
async def test_what_an_empty_list_teaches_fills_it(
    dashboard: Dashboard, settings: Settings, publish: Publish, eventually: Eventually, path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The page's own lines, done as they are written, with a worker beside it that knows no job."""
    monkeypatch.setenv("AMQPJOBS_URL", settings.url)
    empty = (await dashboard.get(path)).text
    assert "<p>None" not in empty
    lines = [unescape(line) for line in re.findall(r"<pre><code>(.*?)</code></pre>", empty, re.DOTALL)]
    count = 0
    worker = Launcher(settings, Plan(queues=[QueueShare("default")]), jobs=Registry(), clock=SystemClock())
    await worker.start()
    try:
        for line in lines:
            if line.startswith("python -m amqpjobs "):
                assert await asyncio.to_thread(cli.main, shlex.split(line)[3:]) == 0
            else:
                _, stream, body = ast.literal_eval(line.removeprefix("channel.basic_publish"))
                await publish(stream, body.encode())
            count += 1

            async def there(count: int = count) -> bool:
                return (await dashboard.get(f"/api{path}")).headers["X-Total-Count"] == str(count)

            await eventually(there)
    finally:
        await worker.stop()
    assert count
    assert "<tbody>" in (await dashboard.get(path)).text


async def test_a_long_entry_is_a_short_line(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> None:
    await publish("dead_jobs", entries.dead(entries.job(args=["x" * 3_000_000])))

    async def there() -> bool:
        return (await dashboard.get("/api/dead-jobs")).headers["X-Total-Count"] == "1"

    await eventually(there)
    body = (await dashboard.get("/dead-jobs")).text
    assert "3.0 MB in all" in body
    assert len(body) < 20_000


async def test_many_dead_jobs_and_a_huge_one_are_listed_at_once(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    """UI-06, with a tenth of the jobs: first page, last page, a search by jid, and the huge one, clipped. With all of
    them, and the memory: `python -m benchmarks.dashboard`."""
    for start in range(0, 10_000, 2500):
        several = range(start, start + 2500)
        await publish("dead_jobs", [entries.dead(entries.job(jid=f"many-{n:05}"), died_at=1.7e9 + n) for n in several])
    huge = entries.job(jid="huge", args=["x" * 10_000_000])
    await publish("dead_jobs", entries.dead(huge, died_at=1.8e9, backtrace="y" * 5_000_000))

    async def there() -> bool:
        found = await dashboard.get("/api/dead-jobs?limit=1&search=many")
        whole = (await dashboard.figures())["dead_count"] == 10_001
        return whole and "x-indexed-up-to" not in found.headers

    await eventually(there)
    for path, shown in (
        ("/dead-jobs", "huge"), ("/dead-jobs?sort=at", "many-00000"),
        ("/api/dead-jobs?limit=100&offset=9901", "many-00099"),
        ("/dead-jobs?search=many-07777", "many-07777"), ("/jobs/huge", "Show all as it came"),
    ):  # fmt: skip
        quickest = math.inf
        for _ in range(3):  # of which the machine may hold up one
            began = time.perf_counter()
            answer = await dashboard.get(path)
            quickest = min(quickest, time.perf_counter() - began)
        assert shown in answer.text, path
        assert len(answer.content) < 200_000, path
        assert quickest < 2, path


async def test_an_action_on_what_was_found_comes_back_to_it(dashboard: Dashboard, filled: list[dict[str, Any]]) -> None:
    body = (await dashboard.get("/retries", params={"q": "user17@example.com", "sort": "jid"})).text
    assert body.count('name="action"') == 3 + 4 + 3  # of one job, of those that are ticked, of all that were found
    form = {"jid": filled[17]["jid"], "action": "delete", "search": "user17@example.com", "sort": "jid"}
    answer = await dashboard.client.post("/retries", data=form)
    assert answer.status_code == 303
    assert "search=user17%40example.com&sort=jid" in answer.headers["location"]


async def test_a_list_is_narrowed_by_error_and_time_and_grouped(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    base = 1_700_000_000
    made = [entries.dead(died_at=base + n, error_class=("Timeout", "Refused", "Odd <b>")[n % 3]) for n in range(90)]
    await publish("dead_jobs", made)

    async def there() -> bool:
        return (await dashboard.get("/api/dead-jobs")).headers["X-Total-Count"] == "90"

    await eventually(there)

    async def found(**search: Any) -> tuple[list[int], str]:
        answer = (await dashboard.get("/api/dead-jobs", params=search | {"limit": 1000})).raise_for_status()
        return [round(each["died_at"] - base) for each in answer.json()], answer.headers["X-Total-Count"]

    assert await found(error="Timeout") == ([*range(87, -1, -3)], "30")
    assert await found(since=base + 10, until=base + 13.5) == ([13, 12, 11, 10], "4")
    assert await found(error="Refused", since="2023-11-14T22:14:00Z", sort="at") == ([*range(40, 90, 3)], "17")
    assert await found(error="nobody") == ([], "0")
    for name, wrong in (("since", "soon"), ("until", "inf"), ("since", "1e400")):
        answer = await dashboard.get("/api/dead-jobs", params={name: wrong})
        assert (answer.status_code, name in answer.json()["detail"]) == (422, True)
    page = (await dashboard.get("/dead-jobs")).text
    assert 'error=Odd%20%3Cb%3E">Odd &lt;b&gt;</a> <small>30</small>' in page
    form = {"all": "1", "action": "delete", "error": "Timeout", "until": str(base + 30)}
    answer = await dashboard.client.post("/dead-jobs", data=form)
    assert answer.status_code == 303
    assert "error=Timeout" in answer.headers["location"]
    assert await found(error="Timeout", sort="at") == ([*range(30, 90, 3)], "20")
    asked = {"action": "delete", "all": True, "search": "Refused", "since": base + 60}
    assert (await dashboard.client.post("/api/dead-jobs/actions", json=asked)).json()["done"] == 10


async def test_those_that_are_ticked_are_moved(dashboard: Dashboard, filled: list[dict[str, Any]], page: Page) -> None:
    await page.goto(f"{dashboard.address}/retries")
    await page.get_by_role("checkbox", name=filled[1]["jid"]).check()
    await page.get_by_role("checkbox", name=filled[3]["jid"]).check()
    await expect(page.locator("#ticked-count")).to_have_text("With the 2 ticked:")
    await page.locator("input[name=minutes]").fill("600000")
    await page.get_by_role("button", name="Move").click()
    await expect(page.locator("#told")).to_contain_text("Rescheduled 2 jobs.")
    last, _ = await listed(dashboard, sort="-due", limit=3)
    assert {*last} == {filled[1]["jid"], filled[3]["jid"], filled[-1]["jid"]}
    await page.locator("#tick-all").check()
    await expect(page.locator("#ticked-count")).to_have_text("With the 50 ticked:")
    await page.locator("#ticked").get_by_role("button", name="Kill").click()
    await expect(page.locator("#told")).to_contain_text("Killed 50 jobs.")
    for form in ({"action": "kill"}, {"action": "kill", "job": "[["}, {"action": "kill", "all": "1", "jid": "x"}):
        assert (await dashboard.client.post("/retries", data=form)).status_code == 422


async def test_no_short_word_is_broken_and_no_long_one_widens_the_page(
    dashboard: Dashboard, publish: Publish, eventually: Eventually, page: Page
) -> None:
    long = entries.job("C" * 200, queue="q" * 200, args=["a" * 500], tags=["t" * 200], jid="j" * 200)
    await publish("retries", entries.retry(), entries.retry(job_=entries.job(queue="critical", args=["b " * 90])))

    async def shown(count: str) -> bool:
        return (await dashboard.get("/api/retries")).headers["X-Total-Count"] == count

    await eventually(lambda: shown("2"))
    lines = """() => [...document.querySelectorAll("thead th:not(:has(.unseen)), td[data-label=Queue]")].map(cell => {
        const range = document.createRange(); range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(each => Math.round(each.top))).size; })"""
    for width in (1440, 1100, 1024):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.goto(f"{dashboard.address}/retries")
        assert max(await page.evaluate(lines)) == 1
    await publish("retries", entries.retry(job_=long, error_class="E" * 200, error_message="m" * 500))
    await eventually(lambda: shown("3"))
    for width in (1440, 1100, 1024, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.goto(f"{dashboard.address}/retries")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_odd_times_are_kept_apart_and_the_pages_come(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    """SCH-03: what is a time waits for it; what is none is dead, and nothing stops a list."""
    now = time.time()
    odd = [now + 25 * 86_400, 1000 * (now + 7200), "NaN", True, "1800000000", "soon", None, [], "2099-01-01T00:00:00Z"]
    await publish("scheduled_jobs", [entries.scheduled() | {"scheduled_at": at} for at in odd])
    raw = '{"type": "scheduled_job", "jid": "x", "scheduled_at": %s, "job": {"class": "C"}}'
    await publish("scheduled_jobs", *((raw % at).encode() for at in ("1e999", "NaN", "-1", "1e308")))

    async def read() -> bool:
        found = await dashboard.get("/api/scheduled-jobs", params={"limit": 1000})
        return len(found.json()) == len(odd) + 4

    await eventually(read)
    waiting = (await dashboard.get("/api/scheduled-jobs", params={"since": now + 60})).json()
    assert [each["scheduled_at"] for each in waiting] == [odd[1], odd[0], odd[-1]]
    for path in ("/scheduled-jobs", "/scheduled-jobs?sort=-due", "/job-queues"):
        assert (await dashboard.get(path)).status_code == 200
