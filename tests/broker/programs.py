"""Programs run by tests as a person would run them: started, their output read, stopped, and never left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from amqpjobs.settings import Settings
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


def environment(settings: Settings | None) -> dict[str, str]:
    """Ours without any setting of the caller's, with these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AMQPJOBS_")}
    clean |= {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    if settings is None:
        return clean
    told = {"AMQPJOBS_URL": settings.url, "AMQPJOBS_STATE_DIR": str(settings.state_dir)}
    if settings.management_url:
        told["AMQPJOBS_MANAGEMENT_URL"] = settings.management_url
    return clean | told


class Program:
    """A running program of this repository, `python ARGUMENTS` or another executable, in a session of its own."""

    def __init__(
        self, *arguments: str, env: dict[str, str], cwd: Path = ROOT, executable: str = sys.executable
    ) -> None:
        self.lines: list[str] = []
        self._arguments = arguments
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [executable, *arguments],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __str__(self) -> str:
        return " ".join(self._arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> re.Match[str]:
        """The first match in any line, seen already or yet to come."""
        return self.wait_for_all([pattern], timeout)[0]

    def wait_for_all(self, patterns: Sequence[str], timeout: float = PATIENCE) -> list[re.Match[str]]:
        """A match of each pattern."""
        with self._news:
            self._news.wait_for(lambda: all(map(self.search, patterns)) or not self._reader.is_alive(), timeout)
            found = [self.search(pattern) for pattern in patterns]
            missing = [pattern for pattern, match in zip(patterns, found, strict=True) if match is None]
            assert not missing, f"{self._arguments}: no {missing} within {timeout} s in\n" + "\n".join(self.lines)
            return [match for match in found if match is not None]

    def search(self, pattern: str) -> re.Match[str] | None:
        return next((match for line in self.lines if (match := re.search(pattern, line))), None)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit status, with all its output read."""
        status = self._process.wait(timeout)
        self._reader.join(timeout)
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE) -> int:
        """Send a signal and wait for the end."""
        self.send(number)
        return self.wait(timeout)

    def end(self) -> None:
        """Whatever happens, leave nothing of it behind."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.decode("utf-8", "replace").rstrip())
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


class Programs:
    """Starts programs; those that still run when the test ends are killed."""

    def __init__(self) -> None:
        self._started: list[Program] = []

    def start(
        self, *arguments: str, env: dict[str, str], cwd: Path = ROOT, executable: str = sys.executable
    ) -> Program:
        program = Program(*arguments, env=env, cwd=cwd, executable=executable)
        self._started.append(program)
        return program

    @property
    def started(self) -> Sequence[Program]:
        return self._started

    def end(self) -> None:
        for program in reversed(self._started):
            program.end()
            print(f"--- {program}", *program.lines, sep="\n")  # pytest shows it for a test that failed
