"""How quick streams come into the lake: `python -m benchmarks.pipeline_ingest [ROWS [ENTRIES [BATCH]]]`.

1,000,000 runs, 20 of them in a message as our workers append them (1: each alone), in batches of 250,000 messages. On
the broker of BENCH_URL, or on a private one. Yardsticks in the same run: the bare reader, which takes the same range
over one connection and does nothing with it, and one that also makes rows of it. Issue 7 asks the pipeline for 70 % of
the bare reader's rate. The pipeline's figure is without the start of Spark; the start of Python workers is in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from amqpjobs.broker.node import PrivateNode
from amqpjobs.model import names
from amqpjobs.pipeline import decode
from amqpjobs.pipeline.app import Pipeline
from amqpjobs.pipeline.reading import ask, messages
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges, topology
from amqpjobs.streams.port import Batch, Connection, Outgoing
from benchmarks.pipeline_lake import jid_of
from benchmarks.pipeline_memory import Memory
from benchmarks.pipeline_rollup import disk

WINDOW = 2000
NOON = 1_795_780_800.0


def bodies(rows: int, entries: int) -> Iterator[bytes]:
    """Runs as workers tell them, in the order of time, at a hundred a second."""
    rng = random.Random(1)
    for low in range(0, rows, entries):
        told = [_run(number, rng) for number in range(low, min(rows, low + entries))]
        yield json.dumps(told if entries > 1 else told[0], separators=(",", ":")).encode()


def _run(number: int, rng: random.Random) -> dict[str, object]:
    cls = int(rng.paretovariate(0.5)) % 100
    duration = rng.lognormvariate(3 + cls / 40, 0.8)
    return {
        "type": "job_metric",
        "timestamp": NOON + number / 100 + rng.random() / 100,
        "jid": jid_of(number),
        "job_class": f"Class{cls:03}",
        "queue": f"queue{cls % 4}",
        "duration_ms": duration,
        "status": "failed" if rng.random() < 0.01 else "success",
        "worker_identity": f"host-{number % 8}:4711:production",
        "attempt": 1,
        "wait_ms": rng.expovariate(0.1),
        "code_version": "2026.11.1",
    }


def fill(settings: Settings, rows: int, entries: int) -> None:
    """Append them to `job_metrics`."""

    async def publish(connection: Connection) -> None:
        await topology.ensure(connection, settings)
        publisher = await connection.publisher()
        window: list[Outgoing] = []
        for body in bodies(rows, entries):
            window.append(Outgoing(body, "", names.METRICS))
            if len(window) == WINDOW:
                await publisher.publish_many(Batch(window))
                window = []
        await publisher.publish_many(Batch(window))

    ask(settings, publish)


def _timed(words: str, rows: int, do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    passed = time.monotonic() - began
    print(f"{words:<44} {passed:>7.1f} s  {rows / passed:>12,.0f} rows/s", flush=True)
    return rows / passed


def measure(settings: Settings, rows: int, entries: int, batch: int) -> None:
    """Fill, read bare, ingest."""
    _timed("appended", rows, lambda: fill(settings, rows, entries))
    wanted = ask(settings, lambda connection: ranges.following(connection, names.METRICS, None, 10**12))
    assert wanted is not None
    bare = _timed("the bare reader", rows, lambda: sum(map(len, messages(settings, wanted, skip=False))))

    def decoded() -> None:
        found = sum(decode.batch("raw_metrics", 0, each).num_rows for each in messages(settings, wanted, skip=False))
        assert found == rows, found

    _timed("the bare reader, and rows made of it", rows, decoded)
    with Memory() as memory, Pipeline(settings) as pipeline:
        rate = _timed("the pipeline, sums and all", rows, lambda: pipeline.run(once=True, most=batch))
        pipeline.tidy()
        print(f"{rate / bare:.0%} of the bare reader's rate")
        disk(pipeline.lake, rows)
        pipeline.spark.stop()
    memory.show()


def main() -> None:
    """On a broker of its own unless BENCH_URL names one, whose streams are then filled."""
    given = [int(each.replace(",", "")) for each in sys.argv[1:]]
    rows, entries, batch = (*given, *(1_000_000, 20, 250_000)[len(given) :])
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        place = Settings(lake_dir=Path(folder) / "lake", state_dir=Path(folder))
        if url := os.environ.get("BENCH_URL"):
            measure(place.model_copy(update={"url": url}), rows, entries, batch)
            return
        node = PrivateNode(Path(folder) / "broker")
        runner.run(node.start())
        try:
            measure(place.model_copy(update={"url": node.url}), rows, entries, batch)
        finally:
            runner.run(node.stop())


if __name__ == "__main__":
    main()
