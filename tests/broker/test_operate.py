"""Orders and looks from the shell, as a person gives them."""

from __future__ import annotations

import asyncio
import getpass
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names, text
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.link import Link
from tests.broker.conftest import Workers
from tests.broker.reading import entries, read_all
from tests.broker.test_cli import command
from tests.patience import PATIENCE

pytestmark = pytest.mark.command_line

Run = Callable[..., Any]


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    async def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(lambda: command(*arguments, settings=settings, cwd=tmp_path))

    return call


async def said(link: Link, stream: str) -> list[dict[str, Any]]:
    found = [each for message in await read_all(await link.connection(), stream) for each in entries(message)]
    return [{name: value for name, value in entry.items() if name not in ("from", "seq")} for entry in found]


async def test_orders_are_on_record_when_the_command_ends(run: Run, link: Link) -> None:
    began = time.time()
    for words, line in {
        ("setup",): None,
        ("pause", "default"): "paused default",
        ("resume", "default"): "resumed default",
        ("quiet", "host:1:production"): "asked host:1:production to quiet",
        ("stop", "--all"): "asked all workers to stop",
        ("cancel", "j1", "j2"): "cancelled j1\ncancelled j2",
    }.items():
        done = await run(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert line is None or done.stdout.strip() == line
    found = await said(link, names.CONTROLS)
    assert all(began <= entry["at"] <= time.time() and entry["by"] == getpass.getuser() for entry in found)
    assert [{k: v for k, v in entry.items() if k not in ("at", "by", "type")} for entry in found] == [
        {"op": "pause", "queue": "default"},
        {"op": "resume", "queue": "default"},
        {"op": "quiet", "process": "host:1:production"},
        {"op": "stop", "process": "*"},
        {"op": "cancel", "jid": "j1"},
        {"op": "cancel", "jid": "j2"},
    ]
    for stream in (names.SCHEDULED, names.RETRIES):
        [entry] = await said(link, stream)
        assert (entry["type"], entry["op"], entry["entries"]) == ("command", "delete", [{"jid": "j1"}, {"jid": "j2"}])


@pytest.mark.parametrize(
    ("words", "status"),
    [(("pause", "a/b"), 1), (("pause",), 2), (("stop",), 2), (("stop", "x", "--all"), 2), (("inspect", "all"), 2)],
)
async def test_a_wrong_order_is_refused_in_a_line(run: Run, words: tuple[str, ...], status: int) -> None:
    done = await run(*words)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert status == 2 or len(done.stderr.splitlines()) == 1


async def test_inspect_shows_what_waits(run: Run, client: Client, link: Link) -> None:
    due = time.time() + 3600
    late = await client.enqueue_at(due + 60, "Later", 1, tags=["t"])
    soon = await client.enqueue_at(due, "Sooner", 1, queue="low")
    dead = {"type": "dead_job", "jid": "d", "died_at": 5.0, "retry_count": 2, "error_class": "E", "backtrace": ""}
    job = {"jid": "d", "class": "C", "args": [1], "queue": "default"}
    appender = Appender(link, names.DEAD, clock=SystemClock())
    entry = dead | {"error_message": "\x1b[31mred\nand more", "job": job}
    await appender.append([text.dump(entry)], timeout=PATIENCE)
    await appender.close()
    done = await run("inspect", "scheduled", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["total"] == 2
    assert [(row["jid"], row["class"], row["queue"], row["tags"]) for row in found["items"]] == [
        (soon, "Sooner", "low", []),
        (late, "Later", "default", ["t"]),
    ]
    done = await run("inspect", "scheduled", "--limit", "1")
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["jid", soon]
    assert "2 in all" in done.stderr
    done = await run("inspect", "dead")
    [heading, line] = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert "error message" in heading
    assert "[31mred and more" in line
    done = await run("inspect", "retries")
    assert (done.returncode, done.stdout) == (0, "")


async def test_inspect_shows_queues_and_processes(run: Run, client: Client, workers: Workers) -> None:
    jobs = Registry()
    jobs.job(name="X")(lambda: None)
    worker = await workers(jobs, queues="low")
    await client.enqueue_many(["X", "X"])
    await run("pause", "low")
    done = await run("inspect", "queues", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["queue"]: row for row in json.loads(done.stdout)["items"]}
    assert rows["default"] == {"queue": "default", "ready": 2, "consumers": 0, "paused": False}
    assert (rows["low"]["ready"], rows["low"]["paused"]) == (0, True)
    done = await run("inspect", "processes", "--json")
    [row] = json.loads(done.stdout)["items"]
    assert (row["process"], row["nonce"]) == (worker.identity.name, worker.identity.nonce)
    assert row["state"] == "paused: by order, low"
    await worker.stop()
    done = await run("inspect", "processes")
    assert (done.returncode, done.stdout) == (0, "")


async def test_inspect_only_reads(run: Run, link: Link) -> None:
    """On a virtual host with nothing in it: it says so, and declares nothing."""
    connection = await link.connection()
    for what in ("scheduled", "processes"):
        done = await run("inspect", what)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
    for stream in names.STREAMS:
        assert await connection.passive(stream) is None
