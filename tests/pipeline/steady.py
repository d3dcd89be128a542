"""The pipeline under a steady load: its lag and its memory, printed (`make chaos-pipeline MINUTES=60 RATE=500`).

Starts a broker of its own and appends RATE entries a second to `job_metrics`, each a message, as many workers do; time
counts from when the first second's entries are in the lake (a JVM that has just started compiles what it runs). Exit
status 0 when the lake was never a minute behind, memory did not grow, and each entry is in each table once.

What is compared of memory: the highest of the second quarter and of the last; the JVM's heap fills up to its limit
first. The lag is how long ago that instant is before which all is in the lake.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from amqpjobs.broker.node import PrivateNode
from amqpjobs.history import lag
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.settings import Settings
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.port import Batch, Outgoing
from tests.patience import PATIENCE
from tests.pipeline import streams
from tests.pipeline.chaos import Pipeline
from tests.pipeline.streams import metric
from tests.pipeline.test_spark_kills import check

MOST_LAG = 60.0
MOST_GROWTH = 1.15
TELL = 15.0


class Sample(NamedTuple):
    """At one moment: seconds behind, resident memory of the driver's Python, of its JVM and of Spark's Python in MB."""

    at: float
    behind: float | None
    driver: float
    jvm: float
    workers: float


def sample(process: psutil.Process, lake: Path, began: float) -> Sample:
    told = {each.stream: each for each in lag.read(lake)}.get(names.METRICS)
    behind = None if told is None or told.since is None else time.time() - told.since
    jvm = workers = 0.0
    for child in process.children(recursive=True):
        try:
            size = child.memory_info().rss / 1e6
            jvm, workers = (jvm + size, workers) if child.name() == "java" else (jvm, workers + size)
        except psutil.Error:
            continue  # it has ended meanwhile
    return Sample(time.time() - began, behind, process.memory_info().rss / 1e6, jvm, workers)


async def feed(settings: Settings, rate: int, seconds: float, first: int = 0) -> int:
    """Append `rate` entries a second, the first one numbered `first`; how many."""
    connection = await connect(settings, name="steady load")
    publisher = await connection.publisher()
    began, sent = time.monotonic(), 0
    try:
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) - sent
            batch = Batch([Outgoing(_body(first + sent + n), "", names.METRICS) for n in range(due)])
            await publisher.publish_many(batch)
            if batch.failed:
                raise next(iter(batch.failed.values()))
            sent += due
            await asyncio.sleep(0.1)
    finally:
        await connection.close()
    return sent


def _body(number: int) -> bytes:
    return json.dumps(metric(number)).encode()


async def run(options: argparse.Namespace, folder: Path) -> int:
    node = PrivateNode(folder / "broker")
    await node.start()
    settings, lake = Settings(url=node.url), Lake(folder / "lake")
    samples: list[Sample] = []
    with (folder / "log").open("w") as log:
        await asyncio.to_thread(streams.declare, settings)
        # What is appended tells one time of the past; upkeep, which comes after an hour, is to leave its minutes.
        pipeline = Pipeline(node.url, lake.folder, log, 250_000, {"AMQPJOBS_LAKE_MINUTES_AGE": "5Y"})
        try:
            first = await feed(settings, options.rate, 1.0)
            await _until_it_reads(lake)
            feeding = asyncio.create_task(feed(settings, options.rate, options.minutes * 60, first))
            began = time.time()
            while not (await asyncio.wait([feeding], timeout=TELL))[0]:
                samples.append(sample(psutil.Process(pipeline.process.pid), lake.folder, began))
                _tell(samples[-1])
            pipeline.process.terminate()
            pipeline.process.wait()
            status = await asyncio.to_thread(pipeline.start("--once").wait)
        finally:
            pipeline.process.kill()
            pipeline.process.wait()
            node.kill()
            await node.stop()
    assert status == 0, (folder / "log").read_text()[-3000:]
    count = first + await feeding
    check(lake, [metric(n) for n in range(count)])
    print(f"{count} entries, each once in each table; {folder / 'log'}")
    return _judge(samples)


async def _until_it_reads(lake: Lake) -> None:
    deadline = time.monotonic() + 4 * PATIENCE
    while lake.mark("raw_metrics", names.METRICS) is None:
        assert time.monotonic() < deadline, "the pipeline does not start"
        await asyncio.sleep(0.2)


def _tell(now: Sample) -> None:
    behind = "not yet" if now.behind is None else f"{now.behind:4.1f} s"
    memory = f"driver {now.driver:.0f}, JVM {now.jvm:.0f}, Python workers {now.workers:.0f} MB"
    print(f"{now.at:6.0f} s: lag {behind}; {memory}; load {os.getloadavg()[0]:.1f}", flush=True)


def _judge(samples: list[Sample]) -> int:
    quarter = max(1, len(samples) // 4)
    early, late = (max(sum(each[2:]) for each in part) for part in (samples[quarter : 2 * quarter], samples[-quarter:]))
    lags = [math.inf if each.behind is None else each.behind for each in samples]
    print(f"lag {statistics.median(lags):.1f} s in the median, {max(lags):.1f} s at most")
    print(f"memory at most {early:.0f} MB early, {late:.0f} MB late")
    return int(max(lags) > MOST_LAG or late > early * MOST_GROWTH)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=500, help="entries a second")
    return asyncio.run(run(parser.parse_args(), Path(tempfile.mkdtemp(prefix="pipeline-steady-"))))


if __name__ == "__main__":
    sys.exit(main())
