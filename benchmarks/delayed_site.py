"""What the benchmarks of delayed sets share: a virtual host, entries to fill it with, and two yardsticks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Outgoing
from benchmarks.broker import measured_broker
from benchmarks.processes import BenchmarkError, Command

WINDOW = 1000
"""Publishes under way at once."""
FAR = 30 * 86400.0
"""Seconds from now at which what is to wait is due, at least."""
CLASSES = ("Mailer", "SendEmailJob", "ReportJob", "Billing::Charge")


@dataclass(frozen=True, slots=True)
class Site:
    """A virtual host with the product's topology, and a folder."""

    settings: Settings
    link: Link
    connection: Connection
    work: Path

    def scheduler(self, state: str) -> Command:
        """A scheduler process that keeps its views in the folder of that name."""
        environment = {"AMQPJOBS_URL": self.settings.url, "AMQPJOBS_STATE_DIR": str(self.work / state)}
        return Command([sys.executable, "-m", "amqpjobs.scheduler"], environment)


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """One on the broker of BENCH_URL, or on a private one."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amqpjobs-bench-")))
        broker = stack.enter_context(measured_broker(work))
        print(f"broker: {broker.version}", flush=True)
        settings = Settings(url=broker.url(stack.enter_context(broker.vhost())))
        link = Link(settings, "benchmark", SystemClock(), fatal_first=True)
        await link.start()
        try:
            connection = await link.connection()
            await topology.ensure(connection, settings)
            yield Site(settings, link, connection, work)
        finally:
            await link.stop()


def job(number: int) -> dict[str, Any]:
    """One job of some 300 bytes; of a thousand one is of a rare class."""
    return {
        "jid": hashlib.sha256(str(number).encode()).hexdigest()[:24],
        "class": CLASSES[number % 4] if number % 1000 else "RareJob",
        "args": [number, f"user{number}@example.com", {"kind": "invoice"}],
        "queue": ("mail", "default")[number % 2],
        "retry": 25,
        "retry_count": 0,
        "created_at": 1.7e9 + number / 1000,
        "tags": ["all", f"t{number % 100}"],
    }


def scheduled(number: int, due: float) -> dict[str, Any]:
    """An entry of `scheduled_jobs`."""
    inner = job(number)
    return {"type": "scheduled_job", "jid": inner["jid"], "scheduled_at": due, "job": inner}


def dead(number: int) -> dict[str, Any]:
    """An entry of `dead_jobs`."""
    inner, died = job(number), 1.7e9 + number
    fault = {"error_class": "ConnectionRefusedError", "error_message": f"host{number % 50} refused the connection"}
    record = {"type": "dead_job", "jid": inner["jid"], "died_at": died, "failed_at": died, "retry_count": 25}
    return record | fault | {"backtrace": "at line 1\n" * 30, "job": inner}


async def publish(connection: Connection, bodies: Iterable[bytes], exchange: str, key: str) -> float:
    """Publish each with a confirm, a window at a time; messages a second."""
    publisher = await connection.publisher()
    count, started = 0, time.perf_counter()
    for chunk in _chunks(bodies, WINDOW):
        await asyncio.gather(*(publisher.publish(Outgoing(body, exchange, key)) for body in chunk))
        count += len(chunk)
    rate = count / (time.perf_counter() - started)
    await publisher.close()
    return rate


async def bare_publish_rate(site: Site, count: int = 20_000) -> float:
    """The yardstick for publishing: confirmed, to a job queue, nothing else; messages a second."""
    queue = "yardstick"
    await site.connection.declare_queue(queue, {"x-queue-type": "classic"})
    body = json.dumps(job(1)).encode()
    rate = await publish(site.connection, (body for _ in range(count)), "", queue)
    await site.connection.delete_queue(queue)
    return rate


def bare_insert_rate(folder: Path, count: int = 100_000) -> float:
    """The yardstick for folding: rows of an entry's size, 2,000 to a transaction, no index; rows a second."""
    path = folder / "yardstick.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, jid, due REAL, cls, queue, at REAL, tags, raw BLOB)")
    body = json.dumps(scheduled(1, 0.0)).encode()
    started = time.perf_counter()
    for first in range(0, count, 2000):
        db.execute("BEGIN")
        rows = [(n, f"{n:024x}", n * 1.0, "Mailer", "mail", 1.0, "[]", body) for n in range(first, first + 2000)]
        db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute("COMMIT")
    rate = count / (time.perf_counter() - started)
    db.close()
    path.unlink()
    return rate


def arrays(entries: Iterable[dict[str, Any]], size: int) -> Iterator[bytes]:
    """Messages of so many entries each."""
    return (json.dumps(chunk).encode() for chunk in _chunks(entries, size))


async def until(holds: Callable[[], Any], timeout: float, pause: float = 0.02) -> float:
    """Seconds until it holds. `holds` may be a coroutine function. Raises TimeoutError."""
    started = time.perf_counter()
    async with asyncio.timeout(timeout):
        while True:
            found = holds()
            if await found if asyncio.iscoroutine(found) else found:
                return time.perf_counter() - started
            await asyncio.sleep(pause)


async def alive(process: subprocess.Popen[bytes], work: Coroutine[Any, Any, None]) -> None:
    """Do it while the process runs. Raises BenchmarkError when that ends first."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait({task}, timeout=1.0))[0]:
        if process.poll() is not None:
            task.cancel()
            raise BenchmarkError(f"the scheduler ended by itself, with {process.returncode}")
    task.result()


async def waiting(connection: Connection, queue: str = "default") -> int:
    """How many jobs are in a job queue."""
    state = await connection.passive(names.broker_queue(queue))
    return 0 if state is None else state.ready


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
