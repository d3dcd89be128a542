"""What the enqueue log costs: `python -m benchmarks.enqueue_log [JOBS [ROUNDS]]` (20,000 and 5 unless told otherwise).

JOBS are enqueued by one client, and confirmed: without a log, with entries that the client appends ("true"), and with
copies that the broker routes ("bound"), in turn, each on a virtual host of its own. Prints medians: the processor time
of the broker and of the client for each job, and jobs a second. The yardstick is the round without a log. On a private
broker, or the one in BENCH_URL, which must be on this machine and otherwise idle.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

import psutil

from amqpjobs.client import Client
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.drivers import connect
from benchmarks.broker import Broker, measured_broker
from benchmarks.processes import BenchmarkError

Log = Literal["bound"] | bool
LOGS: tuple[Log, ...] = (False, True, "bound")
AT_ONCE = 1000
WARM = 500


def main(arguments: list[str]) -> None:
    """Measure and print."""
    jobs, rounds = (int(word) for word in (*arguments, *("20000", "5")[len(arguments) :]))
    found: dict[Log, list[tuple[float, float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, measured_broker(Path(folder)) as broker:
        print(f"{broker.version}, {jobs} jobs, median of {rounds} rounds")
        process = listening(broker.address.port)
        for _ in range(rounds):
            for log in LOGS:
                with broker.vhost() as vhost:
                    found[log].append(asyncio.run(enqueued(broker, vhost, process, log, jobs)))
    print(f"{'log':<8}{'broker, µs a job':>18}{'client, µs a job':>18}{'jobs a second':>15}")
    for log, runs in found.items():
        broker_us, client_us, rate = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{str(log).lower():<8}{broker_us:>18.0f}{client_us:>18.0f}{rate:>15.0f}")


def listening(port: int) -> psutil.Process:
    """The broker's process on this machine."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == port:
            return psutil.Process(each.pid)
    raise BenchmarkError(f"no process of this machine that we may look at listens on port {port}")


async def enqueued(
    broker: Broker, vhost: str, process: psutil.Process, log: Log, jobs: int
) -> tuple[float, float, float]:
    """Microseconds of the broker and of this process for each job, and jobs a second."""
    settings = Settings(url=broker.url(vhost), management_url=broker.management, enqueue_log=log, publish_timeout=120)
    connection = await connect(settings, name="benchmark")
    await topology.ensure(connection, settings)
    await connection.close()
    async with Client(settings) as client:
        await client.enqueue_many([("Warm", [n]) for n in range(WARM)])
        before, began, own = spent(process), time.perf_counter(), time.process_time()
        for first in range(0, jobs, AT_ONCE):
            many = range(first, min(jobs, first + AT_ONCE))
            await client.enqueue_many([("SendEmailJob", ["user@example.com", n]) for n in many])
        took, own = time.perf_counter() - began, time.process_time() - own
        return (spent(process) - before) / jobs * 1e6, own / jobs * 1e6, jobs / took


def spent(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main(sys.argv[1:])
