"""A long run of the pipeline that is killed at random, then counted: `make chaos-pipeline` (ROWS=200000 KILLS=10).

A program that appends metrics, and the pipeline, which is killed (driver, Python worker, executor: SIGKILL) KILLS
times. Once the broker restarts; of one that was given (URL=, its API at MANAGEMENT=) all connections are closed. With
CLUSTER=1 the pipeline runs on a standalone cluster of two workers. In the end every offset must be in every table once,
and the sums those of plain Python. Exit status 0 when all that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil

from amqpjobs.broker.node import PrivateNode
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.settings import Settings
from tests.conftest import Broker
from tests.patience import PATIENCE
from tests.pipeline import streams
from tests.pipeline.cluster import Cluster, words
from tests.pipeline.streams import append, metric, mixed
from tests.pipeline.test_spark_kills import check

CHUNK = 5_000


Disturb = Callable[[], Awaitable[None]]


class Pipeline:
    """The program, started anew whenever it was killed."""

    def __init__(self, url: str, lake: Path, log: TextIO, batch: int, more: Mapping[str, str]) -> None:
        self._log, self._batch = log, batch
        self._environment = {**os.environ, **more, "AMQPJOBS_URL": url, "AMQPJOBS_LAKE_DIR": str(lake)}
        self.process = self.start()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "amqpjobs.pipeline", "run", "--quick", "--batch", str(self._batch), *more]
        self.process = subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)
        return self.process

    async def until_it_reads(self) -> None:
        """Wait for a batch: a driver that is killed while it starts shows nothing."""
        before, deadline = self._batches(), time.monotonic() + 4 * PATIENCE
        while self._batches() == before and self.process.poll() is None:
            assert time.monotonic() < deadline, "the pipeline reads nothing"
            await asyncio.sleep(0.2)

    def _batches(self) -> int:
        return Path(self._log.name).read_text().count(" raw_metrics: ")

    def kill(self, rng: random.Random, cluster: Cluster | None) -> str:
        """The driver, a Python worker or an executor, where there are any."""
        if (status := self.process.poll()) is not None:
            self.start()
            return f"driver that had ended with {status}"
        executors = cluster.executors() if cluster else []
        parents = executors or [psutil.Process(self.process.pid)]
        below = [child for each in parents for child in each.children(recursive=True)]
        workers = [each for each in below if "amqpjobs.pipeline.daemon" in words(each)]
        what, victims = rng.choice([("driver", []), ("Python worker", workers), ("executor", executors)])
        if victims:
            rng.choice(victims).send_signal(signal.SIGKILL)
            return what
        self.process.kill()
        self.process.wait()
        self.start()
        return "driver"


@asynccontextmanager
async def broker(options: argparse.Namespace, folder: Path) -> AsyncIterator[tuple[str, Disturb]]:
    """A broker's address, and what shakes it: a private one is killed, of a given one all connections are closed."""
    if options.url:
        given = Broker(options.url, options.management)
        vhost = given.create_vhost()

        async def close() -> None:
            deadline, closed = time.monotonic() + PATIENCE, 0
            while not closed:  # its management API lists a connection seconds after it began
                assert time.monotonic() < deadline, "nobody is connected"
                await asyncio.sleep(0.2)
                closed = await asyncio.to_thread(given.close_connections, vhost)
            print(f"closed {closed} connections", flush=True)

        try:
            yield given.url_of(vhost), close
        finally:
            given.delete_vhost(vhost)
        return
    node = PrivateNode(folder / "broker")
    await node.start()

    async def restart() -> None:
        node.kill()
        await node.stop()
        await node.start()
        print("the broker restarted", flush=True)

    try:
        yield node.url, restart
    finally:
        node.kill()
        await node.stop()


async def run(options: argparse.Namespace, folder: Path) -> int:
    lake, began = Lake(folder / "lake"), time.monotonic()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        cluster = stack.enter_context(Cluster(folder / "cluster")) if options.cluster else None
        async with broker(options, folder) as (url, disturb):
            await asyncio.to_thread(streams.declare, Settings(url=url))
            pipeline = Pipeline(url, lake.folder, log, options.batch, cluster.environment if cluster else {})
            try:
                metrics = await _chaos(options, url, pipeline, cluster, disturb)
                status = await asyncio.to_thread(pipeline.start("--once").wait)
            finally:
                pipeline.process.kill()
                pipeline.process.wait()
    if status:
        print((folder / "log").read_text()[-3000:])
        return 1
    check(lake, metrics)
    print(f"{len(metrics)} rows, each once in each table, after {time.monotonic() - began:.0f} s; {folder / 'log'}")
    return 0


async def _chaos(
    options: argparse.Namespace, url: str, pipeline: Pipeline, cluster: Cluster | None, disturb: Disturb
) -> list[dict[str, Any]]:
    """Append all rows, and kill meanwhile; then the pipeline is stopped. What was appended."""
    rng, metrics = random.Random(options.seed), list[dict[str, Any]]()
    for kill in range(options.kills + 1):
        part = [metric(n) for n in range(len(metrics), options.rows * (kill + 1) // (options.kills + 1))]
        for at in range(0, len(part), CHUNK):
            await asyncio.to_thread(
                append, Settings(url=url), names.METRICS, mixed(part[at : at + CHUNK], seed=len(metrics) + at)
            )
        metrics += part
        if kill < options.kills:
            await pipeline.until_it_reads()
            if kill == options.kills // 2:
                await disturb()
            await asyncio.sleep(rng.uniform(0, options.pause))
            print(f"{len(metrics)} rows: killed a {pipeline.kill(rng, cluster)}", flush=True)
    pipeline.process.terminate()
    pipeline.process.wait()
    return metrics


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--batch", type=int, default=100, help="messages at a time")
    parser.add_argument("--pause", type=float, default=10, help="seconds from a batch to a kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="on a standalone Spark cluster")
    parser.add_argument("--url", help="of a broker; else one is started")
    parser.add_argument("--management", help="its HTTP API")
    return asyncio.run(run(parser.parse_args(), Path(tempfile.mkdtemp(prefix="pipeline-chaos-"))))


if __name__ == "__main__":
    sys.exit(main())
