"""The pages of one queue, one class, one job and of the processes, on a real broker, and the same as JSON."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from tests.web import entries
from tests.web.conftest import Dashboard, Publish

Eventually = Callable[..., Awaitable[Any]]
PAYLOAD = "<img src=x onerror=alert(1)>"


async def enqueued(link: Link, settings: Settings, queue: str, count: int) -> None:
    connection = await link.connection()
    await topology.ensure_queue(connection, settings, queue)
    publisher = await connection.publisher()
    for _ in range(count):
        body = json.dumps(entries.job(queue=queue)).encode()
        await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, queue))
    await publisher.close()


async def ready(dashboard: Dashboard, queue: str) -> int | None:
    found = (await dashboard.figures())["queues"].get(queue, {}).get("ready")
    return None if found is None else int(found)


async def test_a_queue_is_paused_resumed_and_cleared(
    dashboard: Dashboard, publish: Publish, link: Link, settings: Settings, page: Page, eventually: Eventually
) -> None:
    await publish("retries", entries.retry(job_=entries.job(queue="mail")), entries.retry())
    await publish("heartbeats", entries.heartbeat("a", queues=["mail"]))
    await publish("job_metrics", entries.metric("failed", queue="mail", job_class="Mailer"))
    await enqueued(link, settings.model_copy(update={"max_priority": 3}), "mail", 7)

    async def filled() -> bool:
        shown = (await dashboard.get("/job-queues/mail")).text
        return await ready(dashboard, "mail") == 7 and "<code>x-max-priority</code></dt><dd>3</dd>" in shown

    await eventually(filled)
    await page.goto(f"{dashboard.address}/job-queues")
    await page.get_by_role("link", name="mail", exact=True).click()
    await expect(page.locator("#ready")).to_have_text("7")
    await expect(page.locator("#list")).to_contain_text("Mailer")
    await expect(page.get_by_role("img", name="Depth")).to_contain_text("ready")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#state")).to_contain_text("paused")
    found = (await dashboard.get("/api/job-queues/mail/jobs")).json()
    assert (found["ready"], found["paused"], found["waiting_listed"]) == (7, True, False)
    assert [each["state"] for each in found["jobs"]] == ["retry"]
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#state")).to_contain_text("open")

    refused = await dashboard.client.post("/job-queues/mail", data={"op": "clear", "confirm": "default"})
    assert refused.status_code == 422
    await page.locator("summary", has_text="Clear").click()
    await page.get_by_label("Type its name").fill("mail")
    await page.get_by_role("button", name="Clear mail").click()
    await expect(page.locator("#told")).to_contain_text("7 jobs that waited in mail were thrown away.")

    async def empty() -> bool:
        return await ready(dashboard, "mail") == 0

    await eventually(empty)
    told = (await dashboard.get("/api/audit")).json()
    assert [each["op"] for each in told] == ["clear", "resume", "pause"]


async def test_queues_over_json(dashboard: Dashboard, link: Link, settings: Settings, eventually: Eventually) -> None:
    await enqueued(link, settings, "bulk", 1203)

    async def filled() -> bool:
        return await ready(dashboard, "bulk") == 1203

    await eventually(filled)
    assert (await dashboard.client.post("/api/job-queues/bulk/pause")).status_code == 204
    assert (await dashboard.get("/api/job-queues/bulk/jobs")).json()["paused"] is True
    assert (await dashboard.client.post("/api/job-queues/bulk/resume")).status_code == 204
    assert (await dashboard.client.delete("/api/job-queues/bulk/jobs")).json() == {"queue": "bulk", "cleared": 1203}
    for odd in ("ü", "x#y", "q?1", "a b", "%2F", "nobody"):
        path = f"/api/job-queues/{quote(odd, safe='')}/jobs"
        answer = await dashboard.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert (await dashboard.client.delete(path)).status_code == (200 if odd == "nobody" else 404)


async def test_a_queue_that_no_address_can_name_is_reached(
    dashboard: Dashboard, publish: Publish, page: Page, eventually: Eventually
) -> None:
    """UI-02: `..` is a name that a queue may have."""
    await publish("heartbeats", entries.heartbeat("a", queues=[".."]))
    await page.goto(f"{dashboard.address}/job-queues")
    await page.get_by_role("link", name="..", exact=True).click()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#state")).to_contain_text("paused")
    assert (await dashboard.get("/api/job-queues/~../jobs")).json()["paused"] is True
    assert (await dashboard.client.post("/api/job-queues/~../resume")).status_code == 204


async def test_classes_are_told_by_whole_names_with_percentiles(
    dashboard: Dashboard, publish: Publish, page: Page, eventually: Eventually
) -> None:
    now = time.time()
    sent = [
        entries.metric(
            "failed" if n % 10 == 0 else "success", job_class="Send", duration_ms=n + 1, wait_ms=1000,
            timestamp=now - 70, code_version="v1" if n < 50 else "v2",
        )
        for n in range(100)
    ]  # fmt: skip
    await publish("job_metrics", sent, [entries.metric(job_class="SendLater"), entries.metric(job_class=PAYLOAD)])

    async def counted() -> bool:
        return len((await dashboard.get("/api/job-metrics")).json()) == 3

    await eventually(counted)
    [found] = (await dashboard.get("/api/job-metrics", params={"class": "Send", "period": "5m"})).json()
    assert (found["count"], found["failed"], found["success_rate"]) == (100, 10, 0.9)
    assert found["avg_ms"] == pytest.approx(50.5)
    assert found["run_ms"]["p50"] == pytest.approx(50, rel=0.03)
    assert found["run_ms"]["p99"] == pytest.approx(99, rel=0.03)
    assert found["wait_ms"]["p95"] == pytest.approx(1000, rel=0.03)
    assert (await dashboard.get("/api/job-metrics?period=2h")).status_code == 422

    await page.goto(f"{dashboard.address}/job-metrics")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await page.get_by_role("link", name="Send", exact=True).click()
    await expect(page.locator("#runs")).to_have_text("100")
    await expect(page.locator(".drawn canvas")).to_have_count(3)
    await expect(page.locator("#versions li")).to_have_count(2)
    assert await page.locator(".spread rect").count() > 10
    await page.get_by_role("link", name="72h").click()
    await expect(page.locator("#failed")).to_have_text("10")
    await page.goto(f"{dashboard.address}/job-metrics/{quote(PAYLOAD, safe='')}")
    await expect(page.locator("#runs")).to_have_text("1")
    assert await page.locator("img").count() == 0


async def test_a_jobs_life_is_told_in_order_with_exact_digits(
    dashboard: Dashboard, publish: Publish, page: Page, eventually: Eventually
) -> None:
    now = time.time()
    failed = {"jid": "j1", "error_class": "Timeout", "duration_ms": 1000, "wait_ms": 5, "code_version": "v7"}
    for attempt, ago in ((1, 300), (2, 200)):
        await publish("job_metrics", entries.metric("failed", attempt=attempt, timestamp=now - ago, **failed))
    args = b'[1.10, 12345678901234567890123, {"a": 1e400}, "' + PAYLOAD.encode() + b'"]'
    raw = b'{"type": "retry", "jid": "j1", "retry_at": %d, "retry_count": 2, "failed_at": %d, "error_class": "Timeout",'
    raw += (
        b'"error_message": "' + PAYLOAD.encode() + b'", "job": {"class": "C", "created_at": %d, "args": ' + args + b"}}"
    )
    await publish("retries", raw % (now + 3600, now - 200, now - 400))

    async def known() -> bool:
        answer = await dashboard.get("/api/jobs/j1")
        return answer.status_code == 200 and len(answer.json()["events"]) == 7

    await eventually(known)
    found = (await dashboard.get("/api/jobs/j1")).json()
    assert [event["what"] for event in found["events"]] == [
        "sent", "began to run", "run failed", "began to run", "failed", "run failed", "is due for its next try",
    ]  # fmt: skip
    assert [run["attempt"] for run in found["runs"]] == [1, 2]
    await page.goto(f"{dashboard.address}/retries")
    await page.get_by_role("link", name="j1", exact=True).click()
    for exact in ("1.10", "12345678901234567890123", "1e400", PAYLOAD):
        await expect(page.locator(".arguments")).to_contain_text(exact)
    assert await page.locator("img").count() == 0
    shown = await page.get_by_role("link", name="Show all as it came").get_attribute("href")
    whole = await dashboard.get(f"/jobs/j1{shown}")
    assert whole.content == raw % (now + 3600, now - 200, now - 400)
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    await page.get_by_role("button", name="Kill").click()
    await expect(page.locator("#told")).to_contain_text("Killed 1 job.")
    await page.goto(f"{dashboard.address}/jobs/j1")
    await expect(page.locator(".life")).to_contain_text("kill was ordered")
    assert (await dashboard.get("/api/jobs/nobody")).status_code == 404
    assert (await dashboard.get("/jobs/nobody")).status_code == 200


async def test_a_job_in_a_process_is_told_for_how_long(
    dashboard: Dashboard, publish: Publish, page: Page, eventually: Eventually
) -> None:
    """HB-01: three containers of one name are three rows; each is asked by its own nonce."""
    running = [{"jid": "r1", "class": PAYLOAD, "queue": "default", "started_at": time.time() - 125}]
    await publish("heartbeats", *(entries.heartbeat(nonce, running=running) for nonce in "abc"))

    async def three() -> bool:
        return len((await dashboard.get("/api/processes")).json()) == 3

    await eventually(three)
    await page.goto(f"{dashboard.address}/worker-processes")
    await expect(page.locator(".process")).to_have_count(3)
    await expect(page.locator(".process").first).to_contain_text("2 min")
    await page.get_by_role("button", name="Quiet: worker-01:1 b").click()
    await expect(page.locator("#told")).to_contain_text("b was asked to take no more jobs")
    assert (await dashboard.client.post("/api/processes/c/stop")).status_code == 204
    assert (await dashboard.client.post("/api/processes/nobody/stop")).status_code == 404
    told = (await dashboard.get("/api/audit")).json()
    assert [(each["op"], each["in"], each["via"]) for each in told] == [("stop", "c", "api"), ("quiet", "b", "web")]
    await publish("heartbeats", entries.heartbeat("b", state="quiet"))
    await page.mouse.move(0, 0)
    await expect(page.locator(".process").nth(1)).to_contain_text("quiet")
    await page.goto(f"{dashboard.address}/jobs/r1")
    await expect(page.locator("#list")).to_contain_text("Running now")
    assert await page.locator("img").count() == 0


async def test_a_job_is_enqueued_over_http(
    dashboard: Dashboard, link: Link, settings: Settings, eventually: Eventually
) -> None:
    await topology.ensure_queue(await link.connection(), settings, "web")
    wanted = {"class": "Send", "args": [2**70, {"a": 1}], "queue": "web", "tags": ["t"]}
    sent = await dashboard.client.post("/api/jobs", json=wanted)
    assert (sent.status_code, sent.json()["queue"]) == (201, "web")
    later = await dashboard.client.post(
        "/api/jobs", json={"class": "S", "args": {"k": 1}, "at": time.time() + 900, "jid": "l1"}
    )
    assert later.json()["jid"] == "l1"

    async def there() -> bool:
        waiting = (await dashboard.get("/api/scheduled-jobs")).json()
        return await ready(dashboard, "web") == 1 and [each["job"]["args"] for each in waiting] == [{"k": 1}]

    await eventually(there)
    for wrong in (
        b"", b"{", b"[]", b'{"args": []}', b'{"class": "C", "colour": 1}', b'{"class": "C", "queue": "a/b"}',
        b'{"class": "C", "at": "soon"}', b'{"class": "C", "retry": -1}', b'{"class": "C", "jid": ""}', b"\xff",
    ):  # fmt: skip
        answer = await dashboard.client.post("/api/jobs", content=wrong)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), wrong


async def test_prometheus_reads_the_figures(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> None:
    await publish("job_metrics", [entries.metric(), entries.metric("failed")])
    await publish("heartbeats", entries.heartbeat("a", queues=['q"\\\n']))

    async def counted() -> bool:
        return "amqpjobs_jobs_processed_total 2\n" in (await dashboard.get("/metrics")).text

    await eventually(counted)
    answer = await dashboard.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert "amqpjobs_jobs_failed_total 1" in lines
    assert "# TYPE amqpjobs_jobs_processed_total counter" in lines
    assert 'amqpjobs_queue_paused{queue="default"} 0' in lines
    named = [line for line in lines if not line.startswith("#")]
    assert all(len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0 for line in named)


async def test_every_page_fits_a_phone(dashboard: Dashboard, publish: Publish, page: Page) -> None:
    running = [{"jid": "r" * 200, "class": "C" * 200, "queue": "default", "started_at": time.time()}]
    await publish("heartbeats", entries.heartbeat("n" * 60, hostname="h" * 100, running=running))
    await publish("job_metrics", entries.metric(job_class="C" * 200, jid="j1"))
    await publish("dead_jobs", entries.dead(entries.job("C" * 200, jid="j1", args=["a" * 300]), backtrace="b" * 300))
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{dashboard.address}/job-queues")
    await expect(page.locator("#processed-today")).to_have_text("1")
    await expect(page.locator("#dead")).to_have_text("1")
    await expect(page.locator("#processes tbody tr")).to_have_count(1)
    for path in (
        "job-queues", "job-queues/default", "dead-jobs", "job-metrics", "job-metrics/" + "C" * 200, "worker-processes",
        "jobs/j1", "recurring", "audit", "login", "api/docs",
    ):  # fmt: skip
        await page.goto(f"{dashboard.address}/{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path


async def test_the_audit_counts_no_jobs_of_an_order_that_names_none(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    """A pause of which none was done would read as if it had come to nothing."""
    await publish("controls")  # the topology is there
    assert (await dashboard.client.post("/api/job-queues/default/pause")).status_code == 204

    async def there() -> bool:
        return '<th scope="row">pause' in (await dashboard.get("/audit")).text

    await eventually(there)
    row = (await dashboard.get("/audit")).text.partition('<th scope="row">pause')[2].partition("</tr>")[0]
    assert re.findall(r'<td class="n[^>]*>([^<]*)</td>', row) == ["–"] * 5
