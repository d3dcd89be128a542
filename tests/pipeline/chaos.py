"""A long run of the pipeline that is killed at random, then counted: `make chaos-pipeline` (ROWS=200000 KILLS=10).

A private broker, a program that appends metrics, and the pipeline, which is killed (driver or Python worker, SIGKILL)
KILLS times; once the broker restarts. In the end every offset must be in every table once, and the sums those of plain
Python. Exit status 0 when all that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import psutil

from amqpjobs.broker.node import PrivateNode
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.settings import Settings
from tests.pipeline import streams
from tests.pipeline.streams import append, metric, mixed
from tests.pipeline.test_spark_kills import check

CHUNK = 5_000


class Pipeline:
    """The program, started anew whenever it was killed."""

    def __init__(self, url: str, lake: Path, log: TextIO, batch: int) -> None:
        self._log, self._batch = log, batch
        self._environment = {**os.environ, "AMQPJOBS_URL": url, "AMQPJOBS_LAKE_DIR": str(lake)}
        self.process = self.start()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "amqpjobs.pipeline", "run", "--quick", "--batch", str(self._batch), *more]
        self.process = subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)
        return self.process

    def kill(self, rng: random.Random) -> str:
        """The driver, or one of its Python workers where there are any."""
        whole = psutil.Process(self.process.pid).children(recursive=True)
        workers = [each for each in whole if "pyspark" in " ".join(each.cmdline()) and "java" not in each.name()]
        if workers and rng.random() < 0.5:
            rng.choice(workers).send_signal(signal.SIGKILL)
            return "Python worker"
        self.process.kill()
        self.process.wait()
        self.start()
        return "driver"


async def run(options: argparse.Namespace, folder: Path) -> int:
    node, rng = PrivateNode(folder / "broker"), random.Random(options.seed)
    await node.start()
    settings, lake = Settings(url=node.url), Lake(folder / "lake")
    await asyncio.to_thread(streams.declare, settings)
    metrics: list[dict[str, Any]] = []
    began = time.monotonic()
    with (folder / "log").open("w") as log:
        pipeline = Pipeline(node.url, lake.folder, log, options.batch)
        try:
            for kill in range(options.kills + 1):
                part = [metric(n) for n in range(len(metrics), options.rows * (kill + 1) // (options.kills + 1))]
                for at in range(0, len(part), CHUNK):
                    await asyncio.to_thread(append, settings, names.METRICS, mixed(part[at : at + CHUNK], seed=at))
                metrics += part
                if kill == options.kills // 2:
                    node.kill()
                    await node.stop()
                    await node.start()
                    print(f"{time.monotonic() - began:.0f} s: the broker restarted", flush=True)
                elif kill < options.kills:
                    await asyncio.sleep(rng.uniform(5, options.pause))
                    print(f"{time.monotonic() - began:.0f} s: killed a {pipeline.kill(rng)}", flush=True)
            pipeline.process.terminate()
            pipeline.process.wait()
            status = await asyncio.to_thread(pipeline.start("--once").wait)
        finally:
            pipeline.process.kill()
            node.kill()
            await node.stop()
    if status:
        print((folder / "log").read_text()[-3000:])
        return 1
    check(lake, metrics)
    print(f"{len(metrics)} rows, each once in each table, after {time.monotonic() - began:.0f} s; {folder / 'log'}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--batch", type=int, default=500, help="messages at a time")
    parser.add_argument("--pause", type=float, default=40, help="seconds between two kills, at most")
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(run(parser.parse_args(), Path(tempfile.mkdtemp(prefix="pipeline-chaos-"))))


if __name__ == "__main__":
    sys.exit(main())
