"""Ocypod's interface over HTTP: its README's own session, then each rule that it states."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from amqpjobs.model.tracked import ITEM_BITS
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.web.ocypod_config import PORT, BadOcypodFile, OcypodConfig, read
from tests.broker.bench import running
from tests.patience import PATIENCE
from tests.web.conftest import Dashboard, serving

Eventually = Callable[..., Awaitable[Any]]
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.fixture
async def server(settings: Settings, eventually: Eventually) -> AsyncIterator[Dashboard]:
    async with serving(settings) as served:
        await healthy(served, eventually)
        yield served


async def healthy(served: Dashboard, eventually: Eventually) -> None:
    async def ready() -> bool:
        try:
            return bool((await served.get("/health")).json() == {"status": "healthy"})
        except httpx.TransportError:
            return False

    await eventually(ready)


@pytest.fixture
async def scheduler(settings: Settings, server: Dashboard, eventually: Eventually) -> AsyncIterator[Scheduler]:
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.tracked is not None and scheduler.tracked.leading)
        yield scheduler


async def create(server: Dashboard, queue: str = "demo", **job: Any) -> int:
    response = await server.client.post(f"/queue/{queue}/job", json=job)
    assert response.status_code == 201, response.text
    number = response.json()
    assert response.headers["location"] == f"/job/{number}"
    return int(number)


async def take(server: Dashboard, queue: str = "demo") -> httpx.Response:
    response = await server.get(f"/queue/{queue}/job")
    assert response.status_code == 200, response.text
    return response


async def field(server: Dashboard, job: int, name: str) -> Any:
    response = await server.get(f"/job/{job}", params={"fields": name})
    return response.json()[name] if response.status_code == 200 else None


README: list[tuple[str, int, Any]] = [
    ("curl localhost:8023/health", 200, {"status": "healthy"}),
    (
        "curl -i -H 'content-type: application/json' -XPUT -d '{\"timeout\": \"10m\"}' localhost:8023/queue/demo",
        201, None,
    ),
    (
        "curl localhost:8023/queue/demo", 200,
        {"timeout": "10m", "heartbeat_timeout": "0s", "expires_after": "5m", "retries": 0, "retry_delays": []},
    ),
    ("curl -i -XPUT -d '{\"timeout\": \"10m\"}' localhost:8023/queue/demo", 204, None),
    (
        "curl -i -H 'content-type: application/json' -XPOST -d '{\"input\": [1,2,3]}' localhost:8023/queue/demo/job",
        201, "ID",
    ),
    ("curl localhost:8023/job/ID/status", 200, "queued"),
    (
        "curl localhost:8023/job/ID", 200,
        {
            "id": "ID", "queue": "demo", "status": "queued", "tags": None, "created_at": MOMENT, "started_at": None,
            "ended_at": None, "last_heartbeat": None, "input": [1, 2, 3], "output": None, "timeout": "10m",
            "heartbeat_timeout": "0s", "expires_after": "5m", "retries": 0, "retries_attempted": 0,
            "retry_delays": None, "ended": False,
        },
    ),
    ("curl localhost:8023/queue/demo/job", 200, {"id": "ID", "input": [1, 2, 3]}),
    (
        "curl 'localhost:8023/job/ID?fields=id,status,started_at,ended_at'", 200,
        {"id": "ID", "status": "running", "started_at": MOMENT, "ended_at": None},
    ),
    ("curl -XPUT localhost:8023/job/ID/heartbeat", 204, None),
    ("curl -i -XPUT -H 'content-type: application/json' -d '[1,2,3]' localhost:8023/job/ID/output", 204, None),
    ("curl localhost:8023/job/ID/output", 200, [1, 2, 3]),
    (
        "curl -i -XPATCH -H 'content-type: application/json' -d '{\"status\": \"completed\", \"output\": [2,4,6]}' "
        "localhost:8023/job/ID", 204, None,
    ),
    (
        "curl -i 'http://localhost:8023/job/ID?fields=status,ended_at,output'", 200,
        {"status": "completed", "ended_at": MOMENT, "output": [2, 4, 6]},
    ),
    ("curl -i localhost:8023/queue/demo/job", 204, None),
    ("curl localhost:8023/queue", 200, ["demo"]),
    ("curl -XPOST -d '{\"tags\": [\"user3\"]}' localhost:8023/queue/demo/job", 201, "ID"),
    ("curl localhost:8023/tag/user3", 200, ["ID"]),
    ("curl -XDELETE localhost:8023/job/ID", 204, None),
    ("curl localhost:8023/tag/user3", 200, []),
    ("curl -i -XDELETE localhost:8023/queue/demo", 204, None),
    ("curl -i localhost:8023/queue/demo/job", 404, None),
]  # fmt: skip
"""The commands of its README, in the order in which they make a session, and their answers."""


async def curl(server: Dashboard, command: str) -> httpx.Response:
    """What curl would send."""
    words = shlex.split(command)[1:]
    method, headers, body, address = "GET", {}, None, ""
    while words:
        word = words.pop(0)
        if word.startswith("-X"):
            method = word[2:]
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = words.pop(0)
        elif word != "-i":
            address = word.removeprefix("http://").removeprefix("localhost:8023")
    return await server.client.request(method, address, headers=headers, content=body)


def matches(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(matches(found[name], expected[name]) for name in expected)
    return found == expected or (
        expected == MOMENT and isinstance(found, str) and re.fullmatch(MOMENT, found) is not None
    )


async def test_its_readme_is_answered_as_it_says(server: Dashboard) -> None:
    job = 0
    for command, status, expected in README:
        response = await curl(server, command.replace("ID", str(job)))
        assert response.status_code == status, (command, response.text)
        if expected == "ID":
            job = response.json()
            assert isinstance(job, int)
            assert response.headers["location"] == f"/job/{job}"
            continue
        wanted = json.loads(json.dumps(expected).replace('"ID"', str(job))) if expected is not None else None
        if expected is None:
            assert response.content == b"" or status == 404
        else:
            assert matches(response.json(), wanted), (command, response.text)


async def codes_of_what_cannot_be(server: Dashboard) -> None:
    client = server.client
    await client.put("/queue/demo", json={})
    for method, path, body, status in [
        ("GET", "/queue/none", None, 404), ("GET", "/queue/a b", None, 400), ("PUT", "/queue/a b", "{}", 400),
        ("PUT", "/queue/demo", '{"timeout": "soon"}', 400), ("PUT", "/queue/demo", '{"timeout": 5}', 400),
        ("PUT", "/queue/demo", '{"retries": -1}', 400), ("PUT", "/queue/demo", '{"retries": "x"}', 400),
        ("PUT", "/queue/demo", '{"retry_delays": "1m"}', 400), ("PUT", "/queue/demo", "[", 400),
        ("DELETE", "/queue/none", None, 404), ("DELETE", "/queue/a b", None, 400),
        ("GET", "/queue/none/job", None, 404), ("GET", "/queue/a b/job", None, 400),
        ("POST", "/queue/none/job", "{}", 404), ("POST", "/queue/a b/job", "{}", 400),
        ("POST", "/queue/demo/job", "{", 400), ("POST", "/queue/demo/job", "[]", 400),
        ("POST", "/queue/demo/job", '{"tags": "x"}', 400), ("POST", "/queue/demo/job", '{"timeout": "1 moon"}', 400),
        ("GET", "/job/7", None, 404), ("GET", "/job/x", None, 404), ("GET", "/job/7?fields=none", None, 400),
        ("GET", "/job/7?fields=", None, 400), ("GET", "/job/7/status", None, 404), ("GET", "/job/7/output", None, 404),
        ("PATCH", "/job/7", "{}", 404), ("PATCH", "/job/7", '{"status": "running"}', 400), ("PATCH", "/job/7", "", 400),
        ("PATCH", "/job/7", '{"status": "completed"}', 404), ("DELETE", "/job/7", None, 404),
        ("PUT", "/job/7/heartbeat", None, 404), ("PUT", "/job/7/output", "1", 404), ("PUT", "/job/7/output", "{", 400),
        ("GET", "/job/99999999999999999999999", None, 404),
    ]:  # fmt: skip
        response = await client.request(method, path, content=body)
        assert response.status_code == status, (method, path, body, response.text)


async def what_does_not_run_is_a_conflict(server: Dashboard) -> None:
    await server.client.put("/queue/idle", json={})
    job = await create(server, "idle")
    for method, path, body in [
        ("PUT", f"/job/{job}/heartbeat", None), ("PUT", f"/job/{job}/output", "1"),
        ("PATCH", f"/job/{job}", '{"status": "completed"}'), ("PATCH", f"/job/{job}", '{"output": 1}'),
    ]:  # fmt: skip
        response = await server.client.request(method, path, content=body)
        assert response.status_code == 409, (path, body)
    assert (await server.client.patch(f"/job/{job}", json={})).status_code == 204
    assert (await server.client.patch(f"/job/{job}", json={"status": "cancelled"})).status_code == 204
    assert (await server.get(f"/job/{job}/status")).json() == "cancelled"
    assert (await field(server, job, "ended")) is True


async def a_queue_s_settings_are_a_job_s_unless_it_has_its_own(server: Dashboard) -> None:
    settings = {"timeout": "1h15m5s", "heartbeat_timeout": "3w2d", "expires_after": "0s", "retries": 4}
    await server.client.put("/queue/own", json={**settings, "retry_delays": ["10s", "1m"]})
    assert (await server.get("/queue/own")).json() == {**settings, "retry_delays": ["10s", "1m"]}
    job = await create(server, "own")
    own = await create(server, "own", timeout="2s", retries=1, retry_delays=["5s"])
    for number, name, expected in [
        (job, "timeout", "1h15m5s"), (job, "retries", 4), (job, "retry_delays", ["10s", "1m"]),
        (own, "timeout", "2s"), (own, "retries", 1), (own, "retry_delays", ["5s"]), (own, "heartbeat_timeout", "3w2d"),
    ]:  # fmt: skip
        assert await field(server, number, name) == expected
    await server.client.put("/queue/own", json={})
    assert (await server.get("/queue/own")).json()["timeout"] == "5m", "what is not given is as by default"
    assert await field(server, job, "timeout") == "1h15m5s"


async def first_come_first_served_with_digits_as_they_came(server: Dashboard) -> None:
    await server.client.put("/queue/fifo", json={})
    body = b'{"input": {"x": 1.10, "n": %d}, "tags": ["a"]}' % 2**70
    await server.client.post("/queue/fifo/job", content=body)
    second = await create(server, "fifo", input="second")
    first = await take(server, "fifo")
    assert b'"input":{"x": 1.10, "n": %d}' % 2**70 in first.content
    assert (await take(server, "fifo")).json() == {"id": second, "input": "second"}
    await server.client.post("/queue/fifo/job", content=b'{"input": [NaN, "Infinity", -Infinity]}')
    assert (await take(server, "fifo")).json()["input"] == ["NaN", "Infinity", "-Infinity"], "JSON, and strict"


async def api_01_a_former_holder_is_refused(server: Dashboard, eventually: Eventually) -> None:
    """API-01: A takes a job (timeout 2 s), B takes it after A's time; A completes it, B beats."""
    await server.client.put("/queue/held", json={"timeout": "1s", "retries": 1})
    job = await create(server, "held")
    a = (await take(server, "held")).headers["X-Attempt"]

    async def again() -> httpx.Response | None:
        response = await server.get("/queue/held/job")
        return response if response.status_code == 200 else None

    b = (await eventually(again)).headers["X-Attempt"]
    assert a != b
    before = await field(server, job, "output")
    late = {"status": "completed", "output": "late"}
    assert (await server.client.patch(f"/job/{job}", json=late, headers={"X-Attempt": a})).status_code == 409
    assert (await server.client.put(f"/job/{job}/heartbeat", headers={"X-Attempt": a})).status_code == 409
    assert (await server.client.put(f"/job/{job}/output", content="1", headers={"X-Attempt": a})).status_code == 409
    assert await field(server, job, "output") == before
    assert await field(server, job, "retries_attempted") == 1


async def a_timeout_fires_within_a_second_and_its_retry_follows(server: Dashboard, eventually: Eventually) -> None:
    await server.client.put("/queue/late", json={"timeout": "1s", "retries": 1, "retry_delays": ["1s"]})
    job = await create(server, "late")
    await take(server, "late")

    async def has_ended_once() -> bool:
        return await field(server, job, "ended_at") is not None

    await eventually(has_ended_once)
    shown = (await server.get(f"/job/{job}")).json()
    assert shown["status"] in ("timed_out", "queued")
    assert shown["ended"] is False
    late = instant(shown["ended_at"]) - instant(shown["started_at"]) - 1.0
    assert 0 <= late < PATIENCE

    async def queued_again() -> bool:
        return bool((await server.get(f"/job/{job}/status")).json() == "queued")

    await eventually(queued_again)
    await take(server, "late")

    async def over() -> bool:
        return await field(server, job, "ended") is True

    await eventually(over)
    assert (await server.get(f"/job/{job}/status")).json() == "timed_out"


async def a_silent_job_times_out_and_an_ended_one_expires(server: Dashboard, eventually: Eventually) -> None:
    await server.client.put("/queue/silent", json={"heartbeat_timeout": "1s", "expires_after": "1s"})
    job = await create(server, "silent")
    await take(server, "silent")

    async def gone() -> bool:
        return (await server.get(f"/job/{job}")).status_code == 404

    await eventually(gone)


def instant(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


async def a_deleted_queue_takes_its_queued_jobs_along(server: Dashboard) -> None:
    await server.client.put("/queue/deleted", json={"retries": 3})
    runs, waits = await create(server, "deleted"), await create(server, "deleted")
    await take(server, "deleted")
    assert (await server.client.delete("/queue/deleted")).status_code == 204
    assert (await server.get(f"/job/{waits}")).status_code == 404
    assert (await server.client.patch(f"/job/{runs}", json={"status": "failed"})).status_code == 204
    assert (await server.get(f"/job/{runs}/status")).json() == "failed"
    assert await field(server, runs, "ended") is True


async def info_and_version(server: Dashboard) -> None:
    await server.client.put("/queue/counted", json={})
    before = (await server.get("/info")).json()
    await create(server, "counted")
    found = (await server.get("/info")).json()
    assert found["queues"]["counted"] == {"queued": 1}
    assert found["jobs"]["queued"] == before["jobs"].get("queued", 0) + 1
    assert (await server.get("/info/version")).json() == found["version"]


async def a_page_elsewhere_takes_no_job(server: Dashboard) -> None:
    await server.client.put("/queue/guarded", json={})
    await create(server, "guarded")
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        assert (await server.get("/queue/guarded/job", headers=headers)).status_code == 403
        assert (await server.client.put("/queue/other", json={}, headers=headers)).status_code == 403
    await take(server, "guarded")


async def test_its_rules(server: Dashboard) -> None:
    """One server for all of them: each has a queue of its own."""
    for rule in (
        codes_of_what_cannot_be,
        what_does_not_run_is_a_conflict,
        a_queue_s_settings_are_a_job_s_unless_it_has_its_own,
        first_come_first_served_with_digits_as_they_came,
        a_deleted_queue_takes_its_queued_jobs_along,
        info_and_version,
        a_page_elsewhere_takes_no_job,
    ):
        await rule(server)


async def test_its_times_and_api_01(server: Dashboard, scheduler: Scheduler, eventually: Eventually) -> None:
    """All at once: they wait, mostly."""
    await asyncio.gather(
        api_01_a_former_holder_is_refused(server, eventually),
        a_timeout_fires_within_a_second_and_its_retry_follows(server, eventually),
        a_silent_job_times_out_and_an_ended_one_expires(server, eventually),
    )


async def test_polling_an_empty_queue_writes_nothing(server: Dashboard) -> None:
    """What lies between two jobs in the log is one take. (No scheduler runs, that could write something.)"""
    await server.client.put("/queue/demo", json={})
    before = await create(server, "demo")
    assert (await take(server, "demo")).json()["id"] == before
    for _ in range(20):
        assert (await server.get("/queue/demo/job")).status_code == 204
    assert await create(server, "demo") == before + (2 << ITEM_BITS)


async def test_servers_that_race_give_each_job_once(
    settings: Settings, server: Dashboard, eventually: Eventually
) -> None:
    """Three servers on one broker, clients that race for the jobs: each is done exactly once."""
    jobs = 60
    await server.client.put("/queue/demo", json={"timeout": "0s"})
    async with serving(settings) as second, serving(settings) as third:
        servers = [server, second, third]
        for each in (second, third):
            await healthy(each, eventually)
        await asyncio.gather(*(create(servers[n % 3], input=n) for n in range(jobs)))
        done: Counter[int] = Counter()

        async def client(via: Dashboard) -> None:
            while done.total() < jobs:
                taken = await via.get("/queue/demo/job")
                if taken.status_code == 204:
                    await asyncio.sleep(0.05)
                if taken.status_code == 200:
                    job = taken.json()
                    held = {"X-Attempt": taken.headers["X-Attempt"]}
                    told = await via.client.patch(f"/job/{job['id']}", json={"status": "completed"}, headers=held)
                    assert told.status_code == 204, told.text
                    done[job["input"]] += 1

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(client(via) for via in servers for _ in range(3)))
    assert done == Counter(range(jobs))


async def test_a_body_may_be_so_long_and_no_longer(settings: Settings, tmp_path: Path, eventually: Eventually) -> None:
    path = tmp_path / "ocypod.toml"
    path.write_text('[server]\nmax_body_size = "1kB"\nthreads = 2\n')
    async with serving(settings.model_copy(update={"ocypod": path})) as served:
        await healthy(served, eventually)
        await served.client.put("/queue/demo", json={})
        assert (await served.client.post("/queue/demo/job", json={"input": "x" * 900})).status_code == 201
        assert (await served.client.post("/queue/demo/job", json={"input": "x" * 1000})).status_code == 413


def test_its_file_is_read_and_what_has_no_meaning_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ocypod.toml"
    path.write_text(
        '[server]\nhost = "0.0.0.0"\nport = 8023\nthreads = 2\nmax_body_size = "10MiB"\ntimeout_check_interval = "1m"\n'
        'retry_check_interval = "30s"\nexpiry_check_interval = "1h"\nnext_job_delay = "5s"\n'
        '[redis]\nurl = "redis://:my_password@example.com:6379/my_db"\nthreads = 1\n'
    )
    with caplog.at_level(logging.INFO):
        assert read(path) == OcypodConfig("0.0.0.0", 8023, 10 * 2**20, 5.0)
    named = re.findall(r"(\w+\.\w+) is ignored", caplog.text)
    assert sorted(named) == [
        "redis.threads", "redis.url", "server.expiry_check_interval", "server.retry_check_interval", "server.threads",
        "server.timeout_check_interval",
    ]  # fmt: skip
    assert "my_password" not in caplog.text
    assert read(None) == OcypodConfig(None, None, 256_000, 0.0)
    path.write_text("")
    assert read(path).port == PORT


@pytest.mark.parametrize("text", ["[server", "[none]\n", "[server]\nx = 1\n", '[server]\nmax_body_size = "big"\n'])
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ocypod.toml"
    path.write_text(text)
    with pytest.raises(BadOcypodFile, match=r"ocypod\.toml"):
        read(path)
