"""One child process: started, watched, started again when it dies, stopped in order, its output prefixed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from amqpjobs.clock import Clock
from amqpjobs.service import Service

Emit = Callable[[str, str], None]
"""Shows one line of what the named child says."""

READY = re.compile(r"\bready\b")
"""What each process of ours logs once it serves (in one line of its own)."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
STEADY_AFTER = 30.0
"""A child that ran for so many seconds is started again with the first pause, not with the longest."""

_LONGEST_LINE = 64 * 1024
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Child(Service):
    """Keeps one command running between `start` and `stop`.

    `ready` is set when it has said so for the first time (at once when `announces` is False). A command that ends
    with an error before that is not started again: it is misconfigured, and `failure` says how it ended.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        emit: Emit,
        clock: Clock,
        grace: float = 10.0,
        announces: bool = True,
    ) -> None:
        super().__init__(name)
        self.ready = asyncio.Event()
        self.failure: str | None = None
        self.restarts = 0
        self._command = list(command)
        self._environment = dict(environment)
        self._emit = emit
        self._clock = clock
        self._grace = grace
        self._announces = announces
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The process id, or None while there is no process."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the child and keep it running."""
        self._stopping = False
        await super().start()

    async def stop(self) -> None:
        """TERM, then KILL after `grace` seconds, to whatever is left of the child and its own children."""
        self._stopping = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._grace)
        await super().stop()

    async def run(self) -> None:
        """Run the command again and again, with a pause that doubles up to a bound."""
        pause = FIRST_PAUSE
        while not self._stopping:
            began = self._clock.steady()
            how = await self._run_once()
            if self._stopping:
                return
            if not self.ready.is_set():
                self.failure = how
                return
            if self._clock.steady() - began >= STEADY_AFTER:
                pause = FIRST_PAUSE
            self._emit(self.name, f"{how}: starting it again in {pause:g} s")
            await self._clock.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
            self.restarts += 1

    async def _run_once(self) -> str:
        """Run the command to its end; how it ended, in words."""
        parent = os.getpid()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),
        )
        relay = asyncio.create_task(self._relay(process))
        if not self._announces:
            self.ready.set()
        try:
            return _how_it_ended(await process.wait())
        finally:
            _kill_group(process.pid)
            # What it said last may still be in the pipe, and a stray grandchild may hold that open for ever.
            await asyncio.wait([relay], timeout=1.0)
            relay.cancel()
            self._process = None

    async def _relay(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            self._emit(self.name, line)
            if READY.search(line):
                self.ready.set()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of any length (asyncio's own reader gives up on long ones), those beyond a bound in pieces."""
    pending = b""
    while chunk := await stream.read(65536):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(pending) >= _LONGEST_LINE:
            yield pending.decode("utf-8", "replace")
            pending = b""
    if pending:
        yield pending.decode("utf-8", "replace")


def _die_with(parent: int) -> None:
    """In the child, before it becomes its command: ask the kernel for TERM when the parent dies, however it dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _kill_group(leader: int) -> None:
    """End what the child left behind: it led a session, and so a process group, of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
