"""The programs that are measured: started in sessions of their own, read, and ended by their process groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
STOP_GRACE = 5.0
LONGEST_COMMAND = 240.0


class BenchmarkError(Exception):
    """Something could not be measured; the message says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run, with what its environment gets besides ours."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = ROOT

    def started(self, log: Path) -> subprocess.Popen[bytes]:
        """The program, running; what it says goes to the end of `log`."""
        with log.open("ab") as out:
            return subprocess.Popen(
                list(self.arguments),
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def answer(command: Command, log: Path, timeout: float = LONGEST_COMMAND) -> dict[str, Any]:
    """Run a program to its end and read the JSON object that its last such line holds. Raises BenchmarkError."""
    begin = log.stat().st_size if log.exists() else 0
    process = command.started(log)
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{shown(command)} did not end within {timeout:.0f} s") from None
    finally:
        end([process])
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    if status != 0:
        raise BenchmarkError(f"{shown(command)} ended with {status}: {' / '.join(lines[-3:])}")
    objects = [line for line in lines if line.startswith("{")]
    if not objects:
        raise BenchmarkError(f"{shown(command)} said nothing of its work: {' / '.join(lines[-3:])}")
    found: dict[str, Any] = json.loads(objects[-1])
    return found


@contextlib.contextmanager
def running(commands: Sequence[Command], log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The programs while the block runs; then they are ended."""
    processes = [command.started(log) for command in commands]
    try:
        yield processes
    finally:
        end(processes)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """TERM to each one's group, KILL after some seconds; children that outlive their parent are in the group too."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def resident_bytes(process: subprocess.Popen[bytes]) -> int:
    """Memory of a program and its children, in bytes."""
    try:
        top = psutil.Process(process.pid)
        return sum(int(each.memory_info().rss) for each in [top, *top.children(recursive=True)])
    except psutil.NoSuchProcess:
        raise BenchmarkError("a worker ended by itself while its memory was measured") from None


def cpu_seconds(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """CPU time that programs and their children have used so far, in seconds."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            for each in [top, *top.children(recursive=True)]:
                times = each.cpu_times()
                total += times.user + times.system
    return total


def last_lines(log: Path, count: int = 3) -> str:
    """The end of a log, in a line."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return " / ".join(line for line in lines[-count:] if line.strip())


def shown(command: Command) -> str:
    """A command's name for people."""
    return " ".join(Path(each).name if "/" in each else each for each in command.arguments[:5])
