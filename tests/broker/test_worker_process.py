"""The worker as a process: its options, its signals, its exit codes, and that killing it loses no job."""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.model import names, text
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from tests.broker.conftest import Process, Processes, StreamWatch, Watches
from tests.broker.reading import take_all
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]

APP = """
import asyncio, pathlib, time
from amqpjobs import job

def note(line):
    with open("ran", "a") as file:
        file.write(line + "\\n")

@job
async def hold(n, seconds):
    note(f"begin {n}")
    await asyncio.sleep(seconds)
    note(f"end {n}")

@job
def block(n, seconds):
    note(f"begin {n}")
    time.sleep(seconds)
    note(f"end {n}")

def wait_for_go():
    while not pathlib.Path("go").exists():
        time.sleep(0.02)

@job
def held_in_thread(n):
    note(f"begin {n}")
    wait_for_go()
    note(f"end {n}")

@job
async def held_on_loop(n):
    note(f"begin {n}")
    await asyncio.to_thread(wait_for_go)
    note(f"end {n}")

@job
def mixed(n):
    note(f"begin {n}")
    time.sleep(0.005)
    if n % 10 == 0:
        raise ValueError("every tenth")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def lines(folder: Path) -> list[str]:
    ran = folder / "ran"
    return ran.read_text().splitlines() if ran.exists() else []


def call(folder: Path, settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AMQPJOBS_URL": settings.url, "PYTHONPATH": str(Path.cwd())}
    return subprocess.run(
        [sys.executable, "-m", "amqpjobs.worker", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-A", "nowhere"), "-A nowhere: there is no module 'nowhere'"),
        (("-A", "app.inside"), "-A app.inside: there is no module 'app.inside'"),
        (("-A", "lacks"), "-A lacks: it imports 'not_installed', which is not installed"),
        (("-A", "broken"), "-A broken: importing it raised ZeroDivisionError: division by zero"),
        (("-A", "exits"), "-A exits: importing it ended with exit code 3"),
        (("-A", "app", "-q", "a/b"), "'a/b' cannot be a queue's name"),
        (("-A", "app", "-c", "0"), "whole number above 0"),
        ((), "no job is registered"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: tuple[str, ...], says: str, folder: Path, settings: Settings
) -> None:
    (folder / "lacks.py").write_text("import not_installed")
    (folder / "broken.py").write_text("1 / 0")
    (folder / "exits.py").write_text("raise SystemExit(3)")
    done = call(folder, settings, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "url", ["amqp://guest:guest@127.0.0.1:9/", "wrong password", "amqp://nonsense.invalid/", "http://x"]
)
def test_a_broker_that_cannot_be_used_is_one_line_and_exit_1(url: str, folder: Path, settings: Settings) -> None:
    target = settings.url.replace("guest:guest@", "guest:swordfish@") if url == "wrong password" else url
    done = call(folder, settings.model_copy(update={"url": target}), "-A", "app")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "swordfish" not in done.stderr


NEW_PIDS = ("unshare", "--pid", "--fork", "sh", "-c")
CAN_UNSHARE = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "within",
    [
        pytest.param((), id="alone"),
        pytest.param(NEW_PIDS, id="sh -c as pid 1", marks=pytest.mark.skipif(not CAN_UNSHARE, reason="needs root")),
    ],
)
async def test_shu_01_term_to_the_group_finishes_what_runs_and_gives_the_rest_back(
    within: tuple[str, ...],
    processes: Processes,
    client: Client,
    link: Link,
    watch: Watches,
    folder: Path,
    eventually: Eventually,
) -> None:
    metrics = await watch(names.METRICS)
    for n in range(6):
        await client.enqueue("held_on_loop" if n % 2 else "held_in_thread", n, jid=f"j{n}", retry=3)
    worker = await processes("-A", "app", "-c", "2", "-t", "80", "--prefetch", "10", path=folder, within=within)
    await worker.ready()
    await eventually(lambda: len(lines(folder)) == 2)
    worker.signal_group(signal.SIGTERM)
    connection = await link.connection()
    given_back = await take_all(connection, "queue.default", 4)
    (folder / "go").touch()  # what was not begun went back at once, not when the running jobs ended
    assert await worker.exit() == 0
    assert sorted(lines(folder)) == ["begin 0", "begin 1", "end 0", "end 1"]
    assert [text.parse(message.body)["jid"] for message in given_back] == ["j2", "j3", "j4", "j5"]
    assert {text.parse(message.body)["retry_count"] for message in given_back} == {0}
    assert {entry["status"] for entry in await metrics.until(2)} == {"success"}
    assert "Traceback" not in worker.log


async def test_shu_01_what_does_not_finish_in_time_goes_back_without_a_retry_counted(
    processes: Processes, client: Client, link: Link, watch: Watches, folder: Path, eventually: Eventually
) -> None:
    retries, beats = await watch(names.RETRIES), await watch(names.HEARTBEATS)
    await client.enqueue("hold", 0, 600, jid="async")
    await client.enqueue("block", 1, 600, jid="sync")
    worker = await processes("-A", "app", "-c", "2", "-t", "0.5", path=folder)
    await worker.ready()
    await eventually(lambda: len(lines(folder)) == 2)
    worker.signal_group(signal.SIGTERM)
    assert await worker.exit() == 0
    back = await take_all(await link.connection(), "queue.default", 2)
    jobs = [text.parse(message.body) for message in back]
    assert {job["jid"] for job in jobs} == {"async", "sync"}
    assert {job["retry_count"] for job in jobs} == {0}
    assert retries.entries == []
    assert [entry["state"] for entry in await beats.until(3)][-1] == "stopped"


async def test_a_second_interrupt_does_not_wait(
    processes: Processes, client: Client, link: Link, folder: Path, eventually: Eventually
) -> None:
    await client.enqueue("hold", 0, 600)
    worker = await processes("-A", "app", "-c", "2", "-t", "300", path=folder)
    await worker.ready()
    await eventually(lambda: len(lines(folder)) == 1)
    worker.signal_group(signal.SIGINT)
    await eventually(lambda: "stopping" in worker.log)
    worker.signal_group(signal.SIGINT)
    assert await worker.exit() == 0
    assert len(await take_all(await link.connection(), "queue.default", 1)) == 1


async def test_tstp_takes_no_more_and_ttin_shows_the_stacks(
    processes: Processes, client: Client, link: Link, folder: Path, eventually: Eventually
) -> None:
    worker = await processes("-A", "app", "-c", "2", path=folder)
    await worker.ready()
    await client.enqueue("held_in_thread", 0)
    await eventually(lambda: len(lines(folder)) == 1)
    worker.process.send_signal(signal.SIGTTIN)
    await eventually(lambda: "in held_in_thread" in worker.log and "stacks of all tasks" in worker.log)
    worker.process.send_signal(signal.SIGTSTP)
    await eventually(lambda: "quiet" in worker.log)
    connection = await link.connection()

    async def no_consumer() -> bool:
        state = await connection.passive("queue.default")
        return state is not None and state.consumers == 0

    await eventually(no_consumer)
    await client.enqueue("block", 1, 0)
    (folder / "go").touch()
    await eventually(lambda: "end 0" in lines(folder))
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.exit() == 0
    assert lines(folder) == ["begin 0", "end 0"]
    state = await connection.passive("queue.default")
    assert state is not None
    assert state.ready == 1


async def test_kill_9_loses_no_job_and_doubles_at_most_what_was_in_hand(
    processes: Processes, client: Client, watch: Watches, folder: Path, eventually: Eventually
) -> None:
    """1,000 jobs, every tenth fails; the worker is killed three times. Sent against finished, waiting, and doubled."""
    total, in_hand, kills = 1000, 10, 3
    options = ("-A", "app", "-c", "5", "--prefetch", str(in_hand))  # else quick jobs would widen it
    metrics, retries = await watch(names.METRICS), await watch(names.RETRIES)
    sent = set(await asyncio.gather(*(client.enqueue("mixed", n, jid=f"j{n}") for n in range(total))))
    for kill in range(kills):
        worker = await processes(*options, path=folder)
        await worker.ready()
        await eventually(lambda kill=kill: len(lines(folder)) > (kill + 1) * 150)
        worker.signal_group(signal.SIGKILL)
        assert await worker.exit() == -signal.SIGKILL
    worker = await processes(*options, path=folder)
    await worker.ready()
    await eventually(lambda: finished(metrics) == sent)
    worker.signal_group(signal.SIGTERM)
    assert await worker.exit() == 0
    assert "Traceback" not in worker.log
    failed = {f"j{n}" for n in range(0, total, 10)}
    assert finished(metrics, "failed") == failed == {entry["jid"] for entry in retries.entries}
    assert finished(metrics, "success") == sent - failed
    runs = collections.Counter(lines(folder))
    doubled = sum(runs.values()) - total
    assert len(runs) == total
    assert doubled <= kills * in_hand, f"{doubled} jobs ran again"


def finished(metrics: StreamWatch, *statuses: str) -> set[str]:
    return {entry["jid"] for entry in metrics.entries if not statuses or entry["status"] in statuses}


async def test_term_while_the_broker_is_away_ends_the_worker_all_the_same(
    processes: Processes, node: PrivateNode, folder: Path, eventually: Eventually
) -> None:
    settings = Settings(url=node.url, state_dir=folder)
    async with Client(settings) as client:
        await client.enqueue("block", 1, 2.0)
    worker = await processes("-A", "app", "-t", "5", path=folder, target=settings)
    await worker.ready()
    await eventually(lambda: lines(folder) == ["begin 1"])
    node.kill()
    await eventually(lambda: "lost the connection" in worker.log)
    worker.signal_group(signal.SIGTERM)
    assert await worker.exit() == 0
    assert lines(folder) == ["begin 1", "end 1"]
    assert "1 finished jobs could not be recorded; they run again" in worker.log
    await node.stop()
    await node.start()
    link = Link(settings, "test", SystemClock())
    await link.start()
    [message] = await take_all(await link.connection(timeout=PATIENCE), "queue.default", 1)
    assert text.parse(message.body)["args"] == [1, 2.0]
    await link.stop()


async def test_the_settings_may_name_apps_queues_and_concurrency(
    processes: Processes, client: Client, folder: Path, eventually: Eventually
) -> None:
    environment = {"AMQPJOBS_APPS": "app", "AMQPJOBS_QUEUES": "low,2 high", "AMQPJOBS_CONCURRENCY": "3"}
    worker: Process = await processes(path=folder, **environment)
    await worker.ready()
    assert "queues low, high, concurrency 3" in worker.log
    await client.enqueue("hold", 1, 0, queue="high")
    await eventually(lambda: "end 1" in lines(folder))
