"""The JSON interface on a real broker: the specification's routes and keys, strict, bounded, silent about secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from amqpjobs.clock import SystemClock
from amqpjobs.settings import Settings
from tests.web import entries
from tests.web.conftest import Dashboard, Publish, serving

Eventually = Callable[..., Awaitable[Any]]


def strictly(body: bytes) -> Any:
    """Parse as JSON.parse does: no NaN, no Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(body, parse_constant=refuse)


async def test_the_overview_has_the_specifications_keys(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    await publish("job_metrics", [entries.metric(), entries.metric("failed")])
    await publish("heartbeats", entries.heartbeat("a"), entries.heartbeat("b"))
    await publish("retries", entries.retry())

    async def there() -> bool:
        found = await dashboard.figures()
        return (found["processed_today"], found["retry_count"], found["active_processes"]) == (2, 1, 2)

    await eventually(there)
    found = await dashboard.figures()
    assert {
        "failed_today": 1,
        "scheduled_count": 0,
        "dead_count": 0,
        "busy_workers": 6,
    }.items() <= found.items()
    assert {"critical", "default"} <= found["queues"].keys()
    same = await dashboard.get("/job-queues", headers={"Accept": "application/json"})
    assert same.headers["content-type"] == "application/json"
    assert same.json().keys() == found.keys()
    assert (await dashboard.get("/job-queues")).headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("stream", "path", "make"),
    [
        ("scheduled_jobs", "/api/scheduled-jobs", entries.scheduled),
        ("retries", "/api/retries", entries.retry),
        ("dead_jobs", "/api/dead-jobs", entries.dead),
    ],
)
async def test_lists_give_the_entries_as_they_came_page_by_page(
    dashboard: Dashboard, publish: Publish, eventually: Eventually, stream: str, path: str, make: Callable[[], Any]
) -> None:
    sent = [make() for _ in range(5)]
    await publish(stream, sent[0], sent[1:])

    async def all_there() -> bool:
        return bool((await dashboard.get(path)).headers["x-total-count"] == "5")

    await eventually(all_there)
    listed = (await dashboard.get(path)).json()
    assert len({item.pop("entry") for item in listed}) == 5
    assert sorted(listed, key=lambda item: str(item["jid"])) == sorted(sent, key=lambda item: str(item["jid"]))
    pages = [(await dashboard.get(path, params={"limit": 2, "offset": at})).json() for at in (0, 2, 4, 6)]
    assert [item["jid"] for page in pages for item in page] == [item["jid"] for item in listed]


async def test_parameters_out_of_bounds_are_named(dashboard: Dashboard) -> None:
    wrong = (
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=ten",
        "offset=-1",
        "offset=1e999",
        "limit=99999999999999999999",
    )
    for query in wrong:
        for path in ("/api/scheduled-jobs", "/api/retries", "/api/dead-jobs"):
            response = await dashboard.get(f"{path}?{query}")
            assert response.status_code == 422
            assert response.headers["content-type"] == "application/problem+json"
            assert query.partition("=")[0] in response.json()["detail"]


async def test_unknown_paths_are_problems_too(dashboard: Dashboard) -> None:
    response = await dashboard.get("/api/none")
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    response = await dashboard.client.options("/api/job-queues/default/jobs")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET")
    described = (await dashboard.get("/openapi.json")).json()
    answers = described["paths"]["/api/dead-jobs/{jid}"]["delete"]["responses"]
    assert {"204", "404", "409", "422", "503", "default"} <= answers.keys()
    assert [*answers["422"]["content"]] == ["application/problem+json"]


async def test_what_is_no_json_number_is_shown_as_text_and_digits_are_exact(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    """UI-07."""
    raw = (
        b'{"type": "dead_job", "jid": "nan", "died_at": 1700000000, "retry_count": 0, "error_message": "\\ud800", '
        b'"error_class": "E", "backtrace": "", "job": {"class": "C", "args": [NaN, Infinity, -Infinity, 1e999, '
        b'123456789012345678901234567890], "queue": "default"}}'
    )
    await publish("dead_jobs", raw)
    await publish("job_metrics", json.dumps(entries.metric(duration_ms=float("nan"))).encode())

    async def listed() -> Any:
        return strictly((await dashboard.get("/api/dead-jobs")).content)

    (item,) = await eventually(listed)
    assert item["job"]["args"] == ["NaN", "Infinity", "-Infinity", "Infinity", 123456789012345678901234567890]

    async def counted() -> bool:
        return bool((await dashboard.figures())["processed_today"] == 1)

    await eventually(counted)
    assert (await dashboard.get("/job-queues")).status_code == 200


async def test_a_huge_body_is_clipped_and_says_so(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    huge = entries.dead(entries.job(args=["x" * 1_000_000]), backtrace="y" * 500_000)
    await publish("dead_jobs", huge, entries.dead())

    async def listed() -> Any:
        response = await dashboard.get("/api/dead-jobs")
        return response if response.headers["x-total-count"] == "2" else None

    response = await eventually(listed)
    assert len(response.content) < 10_000
    item = next(item for item in response.json() if item["jid"] == huge["jid"])
    assert item["clipped"]["bytes"] > 1_500_000
    assert item["died_at"] == pytest.approx(huge["died_at"])
    assert item["job"]["class"] == "SendEmailJob"
    assert item["error_message"] == "Database connection failed"


async def test_bytes_that_are_no_job_are_listed_all_the_same(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    await publish("dead_jobs", b"\xff\xfe", b"{", b"", b"7", b"[[]]")

    async def listed() -> Any:
        response = await dashboard.get("/api/dead-jobs")
        return response.content if int(response.headers["x-total-count"]) >= 5 else None

    assert all(item["entry"] for item in strictly(await eventually(listed)))


async def test_three_containers_are_three_processes_and_a_goodbye_takes_one_away(
    dashboard: Dashboard, publish: Publish, eventually: Eventually
) -> None:
    """HB-01: one host name, one process id, three nonces."""
    await publish("heartbeats", *(entries.heartbeat(nonce, busy=2) for nonce in "abc"))

    async def nonces() -> list[str]:
        return sorted(process["nonce"] for process in (await dashboard.get("/api/processes")).json())

    async def three() -> bool:
        return await nonces() == ["a", "b", "c"]

    await eventually(three)

    async def busy() -> bool:
        return bool((await dashboard.figures())["busy_workers"] == 6)

    await eventually(busy)
    await publish("heartbeats", entries.heartbeat("b", state="stopped"), entries.heartbeat("d"))

    async def replaced() -> bool:
        return await nonces() == ["a", "c", "d"]

    await eventually(replaced)


class ShiftedClock(SystemClock):
    """The machine's clock, some seconds ahead."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead

    def wall(self) -> float:
        return super().wall() + self.ahead

    def steady(self) -> float:
        return super().steady() + self.ahead


async def test_a_killed_process_goes_after_a_minute_and_stays_gone_after_a_restart(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    """HB-02."""
    clock = ShiftedClock(0)
    await publish("heartbeats", entries.heartbeat("killed"))
    async with serving(settings, clock) as served:

        async def count() -> int:
            return len((await served.get("/api/processes")).json())

        async def there() -> bool:
            return await count() == 1

        async def gone() -> bool:
            return await count() == 0

        await eventually(there)
        clock.ahead = 59
        await eventually(there)
        clock.ahead = 61
        await eventually(gone)
    clock = ShiftedClock(90)
    async with serving(settings, clock) as served:

        async def ready() -> bool:
            return (await served.get("/health/ready")).status_code == 200

        await eventually(ready)
        await publish("heartbeats", entries.heartbeat("healed"))
        await eventually(there)
        (process,) = (await served.get("/api/processes")).json()
        assert process["nonce"] == "healed"


async def test_metrics_are_never_doubled_by_a_restart_or_a_repeat(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    """MET-02, this page's part: a message of ours that was appended twice, and a dashboard restarted twice."""
    ours = [{**entries.metric(), "from": "w1", "seq": 1}, entries.metric("failed")]
    for expected in (2, 4, 6):
        async with serving(settings) as served:
            number = expected // 2
            ours[0]["seq"] = number
            await publish("job_metrics", ours, ours)

            async def counted(served: Dashboard = served, expected: int = expected) -> bool:
                return bool((await served.figures())["processed_today"] == expected)

            await eventually(counted)
            assert (await served.figures())["failed_today"] == number


async def test_foreign_hosts_are_refused_and_every_answer_is_fenced(dashboard: Dashboard) -> None:
    rebound = await dashboard.get("/job-queues", headers={"Host": "evil.example.com"})
    assert rebound.status_code == 421
    for path in ("/job-queues", "/api/dead-jobs", "/api/none", "/health/live"):
        headers = (await dashboard.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


async def test_a_token_is_asked_for_when_there_is_one(settings: Settings) -> None:
    guarded = settings.model_copy(update={"web_token": SecretStr("t0ken ü")})
    async with serving(guarded) as served:
        assert (await served.get("/api/processes")).status_code == 401
        assert "Bearer" in (await served.get("/job-queues")).headers["www-authenticate"]
        assert (await served.get("/api/processes", auth=("x", "wrong"))).status_code == 401
        assert (await served.get("/api/processes", auth=("x", "t0ken ü"))).status_code == 200
        bearer = {"Authorization": "Bearer t0ken ü".encode()}
        assert (await served.get("/api/processes", headers=bearer)).status_code == 200
        assert (await served.get("/health/live")).status_code == 200


async def test_the_password_of_the_broker_is_nowhere(
    settings: Settings, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    """UI-05: not on a page, in an answer, or in a log, broken connection included."""
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-p4ss"
    broken = settings.model_copy(update={"url": f"amqp://admin:{secret}@127.0.0.1:9/x"})
    async with serving(broken) as served:
        texts = [(await served.get(path)).text for path in ("/job-queues", "/api/job-queues", "/health/ready")]
        assert "127.0.0.1:9" in texts[0]
        assert not any(secret in text for text in texts)
    assert secret not in caplog.text
