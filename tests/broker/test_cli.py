"""The program `amqpjobs` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amqpjobs import __version__
from amqpjobs.broker.ports import free_ports
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from tests.broker.programs import environment
from tests.broker.reading import entries, read_all, take_all
from tests.patience import PATIENCE

pytestmark = pytest.mark.command_line

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(*arguments: str, settings: Settings | None, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "amqpjobs", *arguments]
    env = environment(settings)
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    return lambda *arguments: command(*arguments, settings=settings, cwd=tmp_path)


async def test_setup_declares_everything_and_says_so(run: Run, link: Link) -> None:
    done = run("setup", "default", "mail")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["exchange", names.JOBS_EXCHANGE],
        ["exchange", names.DEAD_EXCHANGE],
        ["exchange", names.UNROUTED],
    ]
    assert "queue     queue.mail (jobs for 'mail')" in lines
    connection = await link.connection()
    for queue in (*names.STREAMS, names.LEADER_QUEUE, "queue.default", "queue.mail"):
        assert await connection.passive(queue) is not None
        assert any(queue in line.split() for line in lines)
    assert run("setup").returncode == 0


async def test_setup_names_what_differs(run: Run, link: Link) -> None:
    connection = await link.connection()
    await connection.declare_queue("queue.default", {})
    done = run("setup")
    assert done.returncode == 0
    assert any(line.startswith("note: ") and "queue.default" in line for line in done.stdout.splitlines())


async def test_enqueue_reads_arguments_as_json_where_they_are(run: Run, link: Link) -> None:
    run("setup", "mail")
    words = ["42", "-7", "text", '{"a": [1, null]}', "true", "--queue"]
    done = run("enqueue", "--queue", "mail", "--priority", "7", "--retry", "3", "SendEmailJob", *words)
    assert (done.returncode, done.stderr) == (0, "")
    [message] = await take_all(await link.connection(), "queue.mail", 1)
    job = json.loads(message.body)
    assert job["jid"] == done.stdout.strip()
    assert job["args"] == [42, -7, "text", {"a": [1, None]}, True, "--queue"]
    assert (job["class"], job["queue"], job["retry"], job["priority"]) == ("SendEmailJob", "mail", 3, 7)
    assert message.properties.priority == 7


@pytest.mark.parametrize(
    ("option", "value", "due"),
    [("--in", "90", 90), ("--in", "2h", 7200), ("--in", "9000d", 9000 * 86400), ("--at", "soon", None)],
)
async def test_enqueue_for_later(run: Run, link: Link, option: str, value: str, due: float | None) -> None:
    run("setup")
    done = run("enqueue", option, value, "SendReminderJob", "7")
    if due is None:
        assert done.returncode == 2
        assert "no time such as" in done.stderr
        return
    assert (done.returncode, done.stderr) == (0, "")
    [scheduled] = [e for message in await read_all(await link.connection(), names.SCHEDULED) for e in entries(message)]
    assert scheduled["jid"] == done.stdout.strip()
    assert scheduled["scheduled_at"] == pytest.approx(scheduled["job"]["enqueued_at"] + due, abs=5)
    assert scheduled["job"]["args"] == [7]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["enqueue"], 2, "CLASS"),
        (["enqueue", "--in", "later", "X"], 2, "no duration"),
        (["enqueue", "--in", "1", "--at", "2", "X"], 2, "not allowed with"),
        (["enqueue", "--retry", "often", "X"], 2, "neither a number nor"),
        (["enqueue", "--queue", "a/b", "X"], 1, "cannot be a queue's name"),
        (["enqueue", "--priority", "11", "X"], 1, "priority is a whole number from 0 to 10"),
        (["setup", "a b"], 1, "cannot be a queue's name"),
        (["nonsense"], 2, "invalid choice"),
        ([], 2, "required"),
    ],
)
def test_wrong_usage_is_said_in_a_line(run: Run, arguments: list[str], status: int, words: str) -> None:
    done = run(*arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["setup"], ["enqueue", "X"]])
def test_without_a_broker_it_says_what_to_do(arguments: list[str], tmp_path: Path) -> None:
    [port] = free_ports(1)
    (tmp_path / "amqpjobs.toml").write_text(
        f'url = "amqp://someone:secret@127.0.0.1:{port}/"\npublish_timeout = 1.0\n', encoding="utf-8"
    )
    done = command(*arguments, settings=None, cwd=tmp_path)
    assert done.returncode == 1
    assert "AMQPJOBS_URL" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr + done.stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"amqpjobs {__version__}\n"


def test_help_of_each_command_ends_well(run: Run) -> None:
    for name in ("up", "enqueue", "setup", "broker", "worker", "scheduler", "web"):
        done = run(name, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage:" in done.stdout
