"""Whatever is asked, by the interface's own description: no 500, strict JSON, problem details, and the pages too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.async_api import Page

from tests.patience import PATIENCE
from tests.web import entries
from tests.web.conftest import Dashboard, Publish
from tests.web.test_api import strictly

Eventually = Callable[..., Awaitable[Any]]
EXAMPLES = 120
PAGES = (
    "/job-queues", "/job-queues/{x}", "/scheduled-jobs", "/retries", "/dead-jobs", "/jobs/{x}", "/job-metrics",
    "/job-metrics/{x}", "/worker-processes", "/recurring", "/audit", "/login", "/api/docs",
)  # fmt: skip
FORMS = ("/job-queues/{x}", "/scheduled-jobs", "/retries", "/dead-jobs", "/worker-processes", "/recurring", "/audit")
QUERIES = ("search", "class", "queue", "tag", "error", "since", "until", "sort", "limit", "offset", "after", "period",
           "action", "entry", "did", "name", "count", "raw")  # fmt: skip
NAMES = ("op", "action", "job", "jid", "all", "minutes", "confirm", "undo", "process", "name", "since")

words = st.text(max_size=12) | st.sampled_from(
    ["", "default", "j1", "j2", "0", "-1", "1e999", "NaN", "due", "-jid", "5m", "delete", "retry", "pause", "quiet",
     "\ud800", "..", "a/b", "%2F", "2026-11-28", "99999999999999999999", "[[", '["1","j1"]', "\x00"]
)  # fmt: skip
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | words
values = st.recursive(leaves, lambda each: st.lists(each, max_size=3) | st.dictionaries(words, each, max_size=3))


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
    """Method, path, names of query parameters, and the body's members."""
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            if told.get("tags", ["tracked jobs"]) == ["tracked jobs"]:
                continue  # they have tests of their own, and some of their answers never end
            query = [each["name"] for each in told.get("parameters", []) if each["in"] == "query"]
            schema = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "$ref" in schema:
                schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            yield method.upper(), path, query, schema.get("properties", {})


def encoded(word: str) -> str:
    return quote(word.encode("utf-8", "surrogatepass"), safe="")


def filled(path: str, data: st.DataObject) -> str:
    """The path with something in each of its places."""
    head, *rest = path.replace(":path", "").split("{")
    for part in rest:
        head += (encoded(data.draw(words)) or "x") + part.partition("}")[2]
    return head


def asked(data: st.DataObject, described: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    method, path, names, members = data.draw(st.sampled_from([
        *operations(described), *(("GET", page, list(QUERIES), {}) for page in PAGES),
        *(("FORM", form, [], {}) for form in FORMS),
    ]))  # fmt: skip
    query = data.draw(st.dictionaries(st.sampled_from(names), words, max_size=3)) if names else {}
    address = filled(path, data) + "?" + "&".join(f"{name}={encoded(word)}" for name, word in query.items())
    if method == "FORM":
        fields = data.draw(st.lists(st.tuples(st.sampled_from(NAMES), words), max_size=4))
        body = "&".join(f"{name}={encoded(word)}" for name, word in fields).encode()
        return "POST", address, {"content": body, "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    if not members:
        return method, address, {}
    given = data.draw(st.dictionaries(st.sampled_from([*members, "odd"]), values, max_size=4))
    raw = json.dumps(given).encode() if data.draw(st.booleans()) else data.draw(st.binary(max_size=30))
    return method, address, {"content": raw, "headers": {"Content-Type": "application/json"}}


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    kind = answer.headers.get("content-type", "")
    if answer.status_code >= 400 and "html" not in kind:
        assert kind == "application/problem+json"
        assert {"title", "status"} <= strictly(answer.content).keys()
    elif kind == "application/json":
        strictly(answer.content)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_no_request_is_too_odd(dashboard: Dashboard, publish: Publish, eventually: Eventually) -> None:
    for stream, make in (
        ("scheduled_jobs", entries.scheduled),
        ("retries", entries.retry),
        ("dead_jobs", entries.dead),
    ):
        await publish(stream, *(make(job_=entries.job(jid=jid)) for jid in ("j1", "j2")))

    async def there() -> bool:
        found = await dashboard.figures()
        return [found[name] for name in ("scheduled_count", "retry_count", "dead_count")] == [2, 2, 2]

    await eventually(there)
    described = (await dashboard.get("/openapi.json")).json()
    assert len(list(operations(described))) > 30

    def all_of_them() -> None:
        with httpx.Client(base_url=dashboard.address, timeout=PATIENCE) as client:

            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(st.data())
            def one(data: st.DataObject) -> None:
                method, address, more = asked(data, described)
                check(client.request(method, address, **more))

            one()

    await asyncio.to_thread(all_of_them)
    assert (await dashboard.get("/health/ready")).status_code == 200


async def test_the_interface_is_told_on_a_page(dashboard: Dashboard, page: Page) -> None:
    await page.goto(f"{dashboard.address}/job-queues")
    await page.get_by_role("link", name="HTTP interface").click()
    described = (await dashboard.get("/openapi.json")).json()
    assert await page.locator(".operation").count() == sum(map(len, described["paths"].values()))
    assert "" not in await page.locator(".operation summary span").all_text_contents()
    specified = [
        "GET /api/job-queues", "GET /api/job-queues/{queue}/jobs", "GET /api/scheduled-jobs",
        "DELETE /api/scheduled-jobs/{jid}", "POST /api/scheduled-jobs/{jid}/trigger", "GET /api/retries",
        "POST /api/retries/{jid}/retry", "POST /api/retries/{jid}/kill", "GET /api/dead-jobs",
        "POST /api/dead-jobs/{jid}/retry", "DELETE /api/dead-jobs/{jid}", "GET /api/job-metrics", "GET /api/processes",
    ]  # fmt: skip
    known = {f"{method} {path}" for method, path, *_ in operations(described)}
    assert set(specified) <= known
