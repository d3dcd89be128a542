"""`amqpjobs up` keeps its children running, and never leaves one behind. Real processes, no broker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.up.child import Child
from amqpjobs.up.private_broker import free_port, is_free
from tests.conftest import Eventually
from tests.patience import PATIENCE

Start = Callable[..., Child]


@pytest.fixture
def said() -> list[str]:
    """What the children said, as lines of `name: line`."""
    return []


@pytest.fixture
async def make(said: list[str]) -> AsyncIterator[Start]:
    """`make(CODE)`: a child that runs this Python; stopped after the test."""
    made: list[Child] = []

    def child(code: str, **options: object) -> Child:
        command = [sys.executable, "-u", "-c", textwrap.dedent(code)]
        made.append(
            Child(
                "it",
                command,
                environment=os.environ,
                emit=lambda name, line: said.append(f"{name}: {line}"),
                clock=SystemClock(),
                **options,  # type: ignore[arg-type]
            )
        )
        return made[-1]

    yield child
    for each in made:
        await each.stop()


SERVES = "import signal; print('it is ready'); signal.pause()"


async def test_a_child_is_ready_once_it_says_so(make: Start, said: list[str]) -> None:
    child = make("import time, signal; print('already here, soon'); print('x ready: yes'); signal.pause()")
    assert not child.ready.is_set()
    await child.start()
    await asyncio.wait_for(child.ready.wait(), PATIENCE)
    assert said == ["it: already here, soon", "it: x ready: yes"]


async def test_a_child_that_dies_is_started_again(make: Start, said: list[str], eventually: Eventually) -> None:
    child = make(SERVES)
    await child.start()
    await asyncio.wait_for(child.ready.wait(), PATIENCE)
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: said.count("it: it is ready") == 2)
    assert child.restarts == 1
    assert child.pid != first
    assert "it: was ended by SIGKILL: starting it again in 0.5 s" in said


async def test_a_child_that_cannot_start_is_not_tried_for_ever(make: Start, said: list[str]) -> None:
    child = make("import sys; print('no such module'); sys.exit(2)")
    await child.start()
    await asyncio.wait_for(child.wait_failed(), PATIENCE)
    assert child.failure == "ended with status 2"
    assert not child.ready.is_set()
    assert said == ["it: no such module"]


async def test_a_stop_is_a_term_and_waits_for_the_end(make: Start, said: list[str]) -> None:
    child = make(
        """
        import signal, sys
        def end(*_):
            print("bye")
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        print("ready")
        while True: signal.pause()
        """
    )
    await child.start()
    await asyncio.wait_for(child.ready.wait(), PATIENCE)
    await child.stop()
    assert said == ["it: ready", "it: bye"]
    assert child.pid is None
    await child.stop()


async def test_a_child_that_ignores_term_is_killed_with_its_own_children(make: Start, said: list[str]) -> None:
    child = make(
        """
        import signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("ready", grandchild.pid)
        while True: signal.pause()
        """,
        grace=0.3,
    )
    await child.start()
    await asyncio.wait_for(child.ready.wait(), PATIENCE)
    pids = [child.pid, int(said[0].split()[-1])]
    await child.stop()
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if pid and psutil.pid_exists(pid)], timeout=PATIENCE
    )
    assert alive == []


async def test_lines_of_any_length_get_through(make: Start, said: list[str], eventually: Eventually) -> None:
    child = make("import signal; print('x' * 300_000); print('ready'); signal.pause()")
    await child.start()
    await asyncio.wait_for(child.ready.wait(), PATIENCE)
    assert sum(line.count("x") for line in said) == 300_000
    assert said[-1] == "it: ready"


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent = textwrap.dedent(
        f"""
        import asyncio, os
        from amqpjobs.clock import SystemClock
        from amqpjobs.up.child import Child
        async def main():
            child = Child("it", [{sys.executable!r}, "-u", "-c", {SERVES!r}], environment=os.environ,
                          emit=lambda name, line: None, clock=SystemClock())
            await child.start()
            await child.ready.wait()
            print(child.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()
    assert psutil.wait_procs([child], timeout=PATIENCE)[1] == []


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert free_port(port) > port
