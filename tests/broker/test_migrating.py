"""The scripts of docs/migrating.md move what waits, each as it stands on the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from tests.broker.bench import Bench
from tests.broker.conftest import Watches
from tests.web.conftest import serving
from tests.web.test_ocypod import healthy

ROOT = Path(__file__).parents[2]
Eventually = Callable[..., Awaitable[Any]]
needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")


async def run(name: str, *arguments: str) -> str:
    """The script of that name, from the page."""
    page = (ROOT / "docs/migrating.md").read_text(encoding="utf-8")
    (script,) = re.findall(rf"```python\n(# {name}\.py .*?)```", page, flags=re.DOTALL)
    command = [sys.executable, "-c", script, *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    return told.decode()


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Callable[..., str]]:
    """A Redis of the test's own; what is yielded asks it, and has its options as `options`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def ask(*words: Any) -> str:
        asked = ["redis-cli", "-p", str(port), *map(str, words)]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()

    ask.port = str(port)  # type: ignore[attr-defined]
    try:
        while ask("PING") != "PONG":
            assert server.poll() is None
            time.sleep(0.05)
        yield ask
    finally:
        server.kill()
        server.wait()


@needs_redis
async def test_sidekiq(settings: Settings, link: Link, watch: Watches, tmp_path: Path, eventually: Eventually) -> None:
    bench = Bench(link)
    await bench.open("default")
    watches = {name: await watch(name) for name in ("scheduled_jobs", "retries", "dead_jobs")}
    job = {"class": "C", "args": [1], "queue": "default", "retry": True, "created_at": 1.7e9, "jid": "w"}
    failed = {"error_class": "E", "error_message": "m", "failed_at": 1.7e9, "retry_count": 2}
    with redis(tmp_path) as ask:
        ask("SADD", "queues", "default")
        for jid in ("w1", "w2"):
            ask("LPUSH", "queue:default", json.dumps(job | {"jid": jid}))
        ask("ZADD", "schedule", 4e9, json.dumps(job | {"jid": "s"}))
        ask("ZADD", "retry", 4e9, json.dumps(job | failed | {"jid": "r"}))
        ask("ZADD", "dead", 1.7e9, json.dumps(job | failed | {"jid": "d"}))
        await run("sidekiq", settings.url, "-p", ask.port)  # type: ignore[attr-defined]
        assert ask("DBSIZE") == "1", "all but the set of queues is gone"
    await eventually(lambda: [job["jid"] for job in bench.jobs] == ["w1", "w2"])
    (scheduled,), (again,), (dead,) = [await watches[name].until(1) for name in watches]
    assert (scheduled["jid"], scheduled["scheduled_at"]) == ("s", 4e9)
    assert (again["jid"], again["retry_at"], again["retry_count"], again["error_class"]) == ("r", 4e9, 3, "E")
    assert (dead["jid"], dead["died_at"]) == ("d", 1.7e9)
    await bench.close()


async def test_celery(settings: Settings, link: Link, watch: Watches, eventually: Eventually) -> None:
    bench = Bench(link)
    await bench.open("default")
    scheduled = await watch("scheduled_jobs")

    def fill() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(settings.url))
        channel = connection.channel()
        channel.queue_declare("celery", durable=True)
        for id_, eta in (("a", None), ("b", "2099-01-01T00:00:00+00:00")):
            properties = pika.BasicProperties(headers={"task": "app.add", "id": id_, "eta": eta, "lang": "py"})
            channel.basic_publish("", "celery", json.dumps([[1, 2], {}, {"callbacks": None}]), properties)
        connection.close()

    await asyncio.to_thread(fill)
    await run("celery", settings.url, "celery")
    await eventually(lambda: bench.jobs)
    assert [(job["jid"], job["class"], job["args"]) for job in bench.jobs] == [("a", "app.add", [1, 2])]
    (entry,) = await scheduled.until(1)
    assert (entry["jid"], entry["scheduled_at"]) == ("b", "2099-01-01T00:00:00+00:00")
    await bench.close()


@needs_redis
async def test_queasy_and_kue(settings: Settings, link: Link, tmp_path: Path, eventually: Eventually) -> None:
    await topology.ensure(await link.connection(), settings)
    waiting = {"id": "k", "data": '{"a":1}', "max_retries": "3", "min_backoff": "2000"}
    inactive = {"type": "print", "priority": "-10", "data": '{"kissa":"ismo"}'}
    async with serving(settings) as new:
        await healthy(new, eventually)
        with redis(tmp_path) as ask:
            ask("ZADD", "{mail}", -4e12, "k")
            ask("HSET", "{mail}:waiting_job:k", *(word for pair in waiting.items() for word in pair))
            await run("queasy", new.address, "mail", "-p", ask.port)  # type: ignore[attr-defined]
            ask("ZADD", "q:jobs:inactive", -10, "7")
            ask("HSET", "q:job:7", *(word for pair in inactive.items() for word in pair))
            await run("kue", new.address, "-p", ask.port)  # type: ignore[attr-defined]
            assert ask("ZCARD", "{mail}") == ask("ZCARD", "q:jobs:inactive") == "0"
        (queasy,) = (await new.get("/api/jobs", params={"state": "delayed"})).json()
        assert (queasy["key"], queasy["data"], queasy["run_at"]) == ("k", {"a": 1}, 4e9)
        (kue,) = (await new.get("/api/jobs", params={"type": "print"})).json()
        assert (kue["priority"], kue["data"], kue["state"]) == (-10, {"kissa": "ismo"}, "inactive")


async def test_ocypod(broker: Any, settings: Settings, tmp_path: Path, eventually: Eventually) -> None:
    vhost = broker.create_vhost()
    other = settings.model_copy(update={"url": broker.url_of(vhost), "state_dir": tmp_path / "other"})
    try:
        async with serving(settings) as old, serving(other) as new:
            for each in (old, new):
                await healthy(each, eventually)
            await old.client.put("/queue/q", json={"timeout": "7m", "retries": 2})
            for n in range(2):
                await old.client.post("/queue/q/job", json={"input": n, "tags": ["t"], "timeout": f"{n + 1}h"})
            told = await run("ocypod", old.address, new.address)
            assert told.count("is now") == 2
            assert (await new.get("/queue/q")).json()["timeout"] == "7m"
            first = (await new.get("/queue/q/job")).json()
            job = (await new.get(f"/job/{first['id']}")).json()
            assert (job["input"], job["tags"], job["timeout"], job["retries"]) == (0, ["t"], "1h", 2)
    finally:
        broker.delete_vhost(vhost)
