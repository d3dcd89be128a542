"""A worker in this process or in one of its own, and a look at what it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from amqpjobs import sync
from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names, text
from amqpjobs.settings import Settings
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Consumer, Incoming
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan
from tests.broker.bench import Bench
from tests.broker.programs import Programs
from tests.broker.reading import once_up
from tests.patience import PATIENCE


class StreamWatch:
    """Reads a stream from its beginning; `entries` holds what it has, arrays taken apart."""

    def __init__(self, link: Link, stream: str) -> None:
        self._link = link
        self._stream = stream
        self.entries: list[dict[str, Any]] = []
        self._consumer: Any = None

    async def start(self) -> None:
        self._consumer = await once_up(self._read)

    async def _read(self) -> Consumer:
        connection = await self._link.connection(timeout=PATIENCE)
        self.entries.clear()
        return await connection.read(self._stream, self._on_message, start="first", prefetch=100)

    def _on_message(self, message: Incoming) -> None:
        value = text.parse(message.body)
        self.entries.extend(value if isinstance(value, list) else [value])
        self._consumer.ack(message.tag)

    async def until(self, count: int, timeout: float = PATIENCE) -> list[dict[str, Any]]:
        """The entries, once there are `count`. The reader ends at the next test's virtual host."""
        deadline = asyncio.get_running_loop().time() + timeout
        while len(self.entries) < count:
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"{self._stream} has {len(self.entries)} entries, not {count}: {self.entries}")
            await asyncio.sleep(0.02)
        return self.entries


@pytest.fixture
async def bench(link: Link) -> AsyncIterator[Bench]:
    """A queue and `dead_jobs`, collected from their beginning."""
    bench = Bench(link)
    await bench.open()
    yield bench
    with contextlib.suppress(BrokerError):
        await bench.close()


@pytest.fixture
def programs() -> Iterator[Programs]:
    """Starts programs; none outlives its test."""
    programs = Programs()
    yield programs
    programs.end()


Watches = Callable[..., Awaitable[StreamWatch]]


@pytest.fixture
async def watch(settings: Settings) -> AsyncIterator[Watches]:
    """`await watch("retries")`: a reader of that stream, on a connection of the test's own."""
    links: list[Link] = []

    async def begin(stream: str, target: Settings | None = None) -> StreamWatch:
        from amqpjobs.clock import SystemClock
        from amqpjobs.streams import topology

        link = Link(target or settings, "watch", SystemClock())
        links.append(link)
        await link.start()

        async def ensure() -> None:
            await topology.ensure(await link.connection(timeout=PATIENCE), link.settings)

        await once_up(ensure)
        found = StreamWatch(link, stream)
        await found.start()
        return found

    yield begin
    for link in links:
        await link.stop()


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    """A started client of the fresh virtual host."""
    async with Client(settings) as client:
        yield client


class Workers:
    """`await workers(registry, concurrency=…)` starts a worker in this process, stopped at the end of the test."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started: list[Launcher] = []

    async def __call__(
        self, jobs: Registry, *, target: Settings | None = None, queues: str = "default", **plan: Any
    ) -> Launcher:
        shares = [QueueShare(name, int(weight or 0)) for name, _, weight in (q.partition(",") for q in queues.split())]
        launcher = Launcher(target or self._settings, Plan(queues=shares, **plan), jobs=jobs)
        self._started.append(launcher)
        await launcher.start()
        return launcher

    async def stop(self, timeout: float = 0) -> None:
        for launcher in self._started:
            await launcher.stop(timeout)

    async def left(self, queue: str = "default") -> int:
        """Stop the workers; how many jobs they had not acknowledged, or not taken: all are on the queue then."""
        await self.stop()
        return await left(self._settings, queue)


async def left(settings: Settings, queue: str = "default") -> int:
    """How many jobs the broker has on a queue that nobody consumes from (any more)."""
    connection = await connect(settings, name="left")
    state = await once_up(lambda: connection.passive(names.broker_queue(queue)))
    await connection.close()
    assert state is not None
    assert state.consumers == 0
    return state.ready


@pytest.fixture
async def workers(settings: Settings) -> AsyncIterator[Workers]:
    """Workers in this process."""
    started = Workers(settings)
    yield started
    await started.stop()


class Process:
    """`python -m amqpjobs.worker` as a process of its own, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip())

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    async def ready(self, timeout: float = PATIENCE) -> None:
        async with asyncio.timeout(timeout):
            while " ready: " not in self.log:
                if self.process.returncode is not None:
                    raise AssertionError(f"exit {self.process.returncode}:\n{self.log}")
                await asyncio.sleep(0.02)

    def signal_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    async def exit(self, timeout: float = PATIENCE) -> int:
        async with asyncio.timeout(timeout):
            code = await self.process.wait()
            await self._reading
        return code


Processes = Callable[..., Awaitable[Process]]


@pytest.fixture
async def processes(settings: Settings) -> AsyncIterator[Processes]:
    """`await processes("-A", "module", path=folder)`: a worker process on the fresh virtual host, killed at the end.

    `within`: a command that takes the worker's command line as its last argument, such as `sh -c`.
    """
    started: list[Process] = []

    async def begin(
        *arguments: str, path: Path, target: Settings | None = None, within: Sequence[str] = (), **environment: str
    ) -> Process:
        use = target or settings
        known = {"AMQPJOBS_URL": use.url, "AMQPJOBS_STATE_DIR": str(use.state_dir), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "amqpjobs.worker", *arguments]
        process = await asyncio.create_subprocess_exec(
            *([*within, shlex.join(command)] if within else command),
            cwd=path,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), **known, **environment},
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        started.append(Process(process))
        return started[-1]

    yield begin
    for one in started:
        if one.process.returncode is None:
            one.signal_group(signal.SIGKILL)
            await one.exit()


@pytest.fixture
def job_client(settings: Settings) -> Any:
    """`@job` functions of this process enqueue to the fresh virtual host."""
    sync.configure(settings)
    yield sync.default_client()
    sync.default_client().close()
