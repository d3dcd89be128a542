"""`amqpjobs up`: everything in one terminal, on a broker of its own or a given one, and nothing left behind."""

from __future__ import annotations

import signal
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.settings import Settings
from amqpjobs.sync import SyncClient
from tests.broker.programs import Program, Programs, environment
from tests.conftest import Eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.command_line


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def processes_of(folder: Path) -> list[psutil.Process]:
    """All processes that were told to keep their state in this folder, or that work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            told = process.environ()
        except psutil.Error:
            continue
        if any(str(folder) in value for value in told.values()):
            found.append(process)
    return found


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        return answer.read()


def up(programs: Programs, settings: Settings, port: int, *more: str) -> Program:
    arguments = ["-m", "amqpjobs", "up", "-A", "workers.demo", "--port", str(port), *more]
    return programs.start(*arguments, env=environment(settings))


def child_of(program: Program, line: str) -> psutil.Process | None:
    """The child whose command line holds `line`."""
    children = psutil.Process(program.pid).children()
    return next((child for child in children if line in " ".join(child.cmdline())), None)


async def test_everything_on_a_given_broker(
    programs: Programs, settings: Settings, port: int, eventually: Eventually
) -> None:
    started = up(programs, settings, port)
    started.wait_for(rf"ready\. Dashboard: http://127\.0\.0\.1:{port}/job-queues")
    assert b"<html" in get(port, "/job-queues")
    with SyncClient(settings) as client:
        jid = client.enqueue("SendEmailJob", "user@example.com", "Hello!")
        client.enqueue_in(3600, "SendReminderJob", 7)
    started.wait_for(rf"worker +\| .*{jid}.*mail to user@example.com: Hello!")
    await eventually(lambda: b"SendReminderJob" in get(port, "/api/scheduled-jobs"))
    assert started.stop(signal.SIGINT) == 0
    assert started.search("all stopped")
    assert processes_of(settings.state_dir) == []


async def test_a_child_that_is_killed_comes_back(
    programs: Programs, settings: Settings, port: int, eventually: Eventually
) -> None:
    started = up(programs, settings, port)
    started.wait_for(r"ready\. Dashboard")
    for module in ("amqpjobs.worker", "amqpjobs.scheduler", "amqpjobs.web"):
        child = child_of(started, module)
        assert child is not None
        child.kill()
        started.wait_for(rf"{module.split('.')[1]} +\| was ended by SIGKILL: starting it again in 0\.5 s")
        await eventually(lambda module=module, pid=child.pid: _another(started, module, pid))
    await eventually(lambda: _answers(port))
    assert started.stop() == 0
    assert processes_of(settings.state_dir) == []


def _another(started: Program, module: str, pid: int) -> bool:
    child = child_of(started, module)
    return child is not None and child.pid != pid


def _answers(port: int) -> bool:
    try:
        return bool(get(port, "/job-queues"))
    except OSError:
        return False


def test_nothing_survives_a_parent_that_is_killed(programs: Programs, tmp_path: Path, port: int) -> None:
    """With a private broker: its node and its port mapper too."""
    env = environment(None) | {"AMQPJOBS_STATE_DIR": str(tmp_path / "state")}
    started = programs.start("-m", "amqpjobs", "up", "-A", "workers.demo", "--port", str(port), env=env)
    started.wait_for(r"broker +\| ready on port \d+")
    started.wait_for(r"ready\. Dashboard")
    alive = processes_of(tmp_path)
    assert len(alive) >= 5
    started.send(signal.SIGKILL)
    started.wait()
    assert psutil.wait_procs(alive, timeout=PATIENCE)[1] == []
    assert processes_of(tmp_path) == []


def test_a_private_broker_that_comes_back_and_a_clean_end(programs: Programs, tmp_path: Path, port: int) -> None:
    env = environment(None) | {"AMQPJOBS_STATE_DIR": str(tmp_path / "state")}
    command = f"producer={sys.executable} workers/foreign_producer.py --count 5 --rate 50 --mix quick"
    started = programs.start(
        "-m", "amqpjobs", "up", "-A", "workers.demo", "--port", str(port), "--with", command, env=env
    )
    started.wait_for(r"producer +\| producer: sent 5")
    started.wait_for(r"worker +\| .*(mail to|is processed)")
    [node] = [process for process in processes_of(tmp_path) if process.name() == "beam.smp"]
    node.kill()
    started.wait_for(r"broker +\| the node ended: starting it again")
    started.wait_for(r"broker +\| the node serves again")
    assert started.stop(signal.SIGINT) == 0
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("moment", ["starting a private broker", r"broker +\| ready"])
def test_it_can_be_stopped_while_it_starts(programs: Programs, tmp_path: Path, port: int, moment: str) -> None:
    env = environment(None) | {"AMQPJOBS_STATE_DIR": str(tmp_path / "state")}
    started = programs.start("-m", "amqpjobs", "up", "-A", "workers.demo", "--port", str(port), env=env)
    started.wait_for(moment)
    assert started.stop(signal.SIGINT) == 0
    assert started.search("all stopped")
    assert processes_of(tmp_path) == []


def test_a_port_that_is_taken_is_an_error(programs: Programs, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = up(programs, settings, port)
        assert started.wait() == 1
    assert started.search(f"error: port {port} is taken: .*--port")


def test_a_module_that_is_not_there_is_an_error(programs: Programs, settings: Settings, port: int) -> None:
    arguments = ["-m", "amqpjobs", "up", "-A", "no_such_module", "--port", str(port)]
    started = programs.start(*arguments, env=environment(settings))
    assert started.wait() == 1
    assert started.search(r"worker +\| .*no_such_module")
    assert started.search(r"error: the worker ended with status 2")
    assert processes_of(settings.state_dir) == []
