"""The languages that `workers/` has a producer and a worker in, and a look at what they write."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Outgoing
from tests.broker.programs import ROOT, Program, Programs, environment
from tests.broker.reading import entries, once_up
from tests.patience import PATIENCE
from workers import foreign_producer

TESTED_GO = ROOT / ".cache/go"


def _needs(program: str, *check: str) -> str | None:
    """What is wrong with a program, or with what it loads; None when it works."""
    if shutil.which(program) is None:
        return f"there is no {program}"
    ran = subprocess.run([program, *check], cwd=ROOT, capture_output=True, text=True, check=False)
    return (ran.stderr or ran.stdout or f"{program} fails").strip().splitlines()[-1] if ran.returncode else None


def _go_missing() -> str | None:
    """Builds what is older than its source; one process at a time, or one would replace what another runs."""
    if shutil.which("go") is None:
        return "there is no go"
    TESTED_GO.mkdir(parents=True, exist_ok=True)
    with (TESTED_GO / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if _go_is_built() else _needs("workers/go/build")


def _go_is_built() -> bool:
    built = [TESTED_GO / name for name in ("producer", "worker")]
    newest = max(source.stat().st_mtime for source in (ROOT / "workers/go").rglob("*") if source.is_file())
    return all(program.exists() and program.stat().st_mtime > newest for program in built)


@dataclass(frozen=True)
class Language:
    """How its programs are started, and how one learns what is missing."""

    name: str
    worker: tuple[str, ...]
    producer: tuple[str, ...]
    check: Callable[[], str | None]

    def missing(self) -> str | None:
        """A line for people, None when its programs can run."""
        fault = self.check()
        return fault and f"{self.name} cannot be tested: {fault} (`scripts/setup test` installs what it needs)"


LANGUAGES = (
    Language("python-pika", (sys.executable, "-m", "workers.python.worker"), (), lambda: None),
    Language(
        "javascript",
        ("node", "workers/javascript/worker.mjs"),
        ("node", "workers/javascript/producer.mjs"),
        lambda: _needs("node", "-e", "require(require.resolve('amqplib', {paths: ['workers/javascript']}))"),
    ),
    Language(
        "ruby",
        ("ruby", "workers/ruby/worker.rb"),
        ("ruby", "workers/ruby/producer.rb"),
        lambda: _needs("ruby", "-e", "require 'bunny'"),
    ),
    Language("go", (str(TESTED_GO / "worker"),), (str(TESTED_GO / "producer"),), _go_missing),
)


@dataclass
class Site:
    """One language's programs on one virtual host: a worker of the queue `default`, and our scheduler beside it."""

    language: Language
    settings: Settings
    programs: Programs
    out: Path
    default: Program = field(init=False)

    def start(self, *arguments: str) -> Program:
        """A worker of the language, once it is ready."""
        executable, *given = self.language.worker
        env = environment(self.settings) | {"OUT": str(self.out)}
        worker = self.programs.start(*given, *arguments, env=env, executable=executable)
        worker.wait_for(r"\bready\b")
        return worker

    def produce(self, verb: str, queue: str, job_class: str, args: list[Any], seconds: float | None = None) -> str:
        """Send a job with the language's producer; its jid."""
        if not self.language.producer:
            return self._produce_with_pika(queue, job_class, args, seconds)
        command = [*self.language.producer, verb, queue, job_class, json.dumps(args)]
        command += [] if seconds is None else [str(seconds)]
        env = environment(self.settings)
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return ran.stdout.strip()

    def _produce_with_pika(self, queue: str, job_class: str, args: list[Any], seconds: float | None) -> str:
        connection = pika.BlockingConnection(pika.URLParameters(self.settings.url))
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            if seconds is None:
                return foreign_producer.enqueue(channel, job_class, args, queue)
            return foreign_producer.schedule(channel, job_class, args, time.time() + seconds, queue)
        finally:
            connection.close()

    def written(self) -> list[Any]:
        """What the handler `echo` wrote."""
        return [json.loads(line) for line in self.out.read_text("utf-8").splitlines()] if self.out.exists() else []


class Log:
    """A stream, read from its beginning and then as it grows."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.entries: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self._news = asyncio.Event()

    async def start(self, link: Link) -> None:
        await once_up(lambda: self._read(link))

    async def _read(self, link: Link) -> None:
        connection = await link.connection(timeout=PATIENCE)
        self.entries, self.bodies = [], []
        consumer = await connection.read(self.stream, lambda message: self._take(message, consumer.ack), start="first")

    def of(self, **members: Any) -> list[dict[str, Any]]:
        """The entries with these members."""
        return [entry for entry in self.entries if members.items() <= _hashable(entry).items()]

    def body(self, **members: Any) -> bytes:
        """The message that has the first entry with these members."""
        return self.bodies[self.entries.index(self.of(**members)[0])]

    async def until(self, count: int = 1, timeout: float = PATIENCE, **members: Any) -> list[dict[str, Any]]:
        """The entries with these members, once there are so many."""
        try:
            async with asyncio.timeout(timeout):
                while len(found := self.of(**members)) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self.stream}: not {count} of {members} in {self.entries}") from None
        return found

    async def one(self, **members: Any) -> dict[str, Any]:
        """The one entry with these members, once it is there."""
        [found] = await self.until(**members)
        return found

    def _take(self, message: Incoming, ack: Callable[[int], None]) -> None:
        for entry in entries(message):
            self.entries.append(entry)
            self.bodies.append(message.body)
        ack(message.tag)
        self._news.set()


def _hashable(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not isinstance(value, dict | list)}


class Logs:
    """The streams that workers write, each read from its beginning."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.metrics = Log(names.METRICS)
        self.retries = Log(names.RETRIES)
        self.dead = Log(names.DEAD)
        self.beats = Log(names.HEARTBEATS)

    async def start(self) -> Logs:
        for log in (self.metrics, self.retries, self.dead, self.beats):
            await log.start(self._link)
        return self

    async def send(self, exchange: str, key: str, *bodies: bytes | dict[str, Any]) -> None:
        """Publish bytes or JSON, confirmed."""
        publisher = await (await self._link.connection(timeout=PATIENCE)).publisher()
        for body in bodies:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            await publisher.publish(Outgoing(raw, exchange, key))
        await publisher.close()

    async def enqueue(self, queue: str, *jobs: bytes | dict[str, Any]) -> None:
        """Put jobs on a queue as they are."""
        await self.send(names.JOBS_EXCHANGE, queue, *jobs)

    async def order(self, *controls: dict[str, Any]) -> float:
        """Append to `controls`; when it was confirmed."""
        await self.send("", names.CONTROLS, *controls)
        return time.time()

    async def waiting(self, queue: str) -> tuple[int, int]:
        """How many jobs a queue holds, and how many consumers it has."""
        state = await (await self._link.connection(timeout=PATIENCE)).passive(names.broker_queue(queue))
        return (0, 0) if state is None else (state.ready, state.consumers)


Eventually = Callable[..., Awaitable[Any]]


def statuses(metrics: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """What became of each run, and which run it was."""
    return [(metric["status"], metric["attempt"]) for metric in metrics]
