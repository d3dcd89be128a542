"""How quick streams come into the lake: `python -m benchmarks.pipeline_ingest [ROWS [ENTRIES [BATCH]]]`.

1,000,000 runs, 20 of them in a message as our workers append them (1: each alone), in batches of 250,000 messages. On
the broker of BENCH_URL, or on a private one. Yardsticks in the same run, over the same range and one connection: a
reader that makes rows of what it reads, of whose rate issue 7 asks the pipeline for 70 %; and one that does nothing
with it, which says what the connection gives, and is told beside it.

Two rates of the pipeline are told. The steady one is that of the batches after the first: it runs for months. The whole
run begins before Spark is started, and has the first batch, of 20,000 runs, and all sums in it. CPU is that of the
processes for a row, and does not depend on who else uses the machine.
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
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from amqpjobs.broker.node import PrivateNode
from amqpjobs.model import names
from amqpjobs.pipeline import decode
from amqpjobs.pipeline.app import Pipeline
from amqpjobs.pipeline.ingest import Ingest
from amqpjobs.pipeline.reading import ask, messages
from amqpjobs.pipeline.rollup import roll_up
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges, topology
from amqpjobs.streams.port import Batch, Connection, Outgoing
from amqpjobs.streams.ranges import Position
from benchmarks.pipeline_lake import jid_of
from benchmarks.pipeline_memory import Memory, cpu_seconds
from benchmarks.pipeline_rollup import disk

WINDOW = 2000
WARM = 20_000
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


class Timed(NamedTuple):
    """So many rows in so many seconds."""

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


def _timed(words: str, rows: int, do: Callable[[], object]) -> Timed:
    before, began = cpu_seconds(), time.monotonic()
    do()
    passed = time.monotonic() - began
    used = {kind: 1e6 * (after - before[kind]) / rows for kind, after in cpu_seconds().items()}
    each = ", ".join(f"{kind} {micros:.1f}" for kind, micros in used.items() if micros >= 0.05)
    print(f"{words:<38} {passed:>7.1f} s  {rows / passed:>10,.0f} rows/s; µs of CPU a row: {each}", flush=True)
    return Timed(rows, passed)


def _yardsticks(settings: Settings, rows: int, before: Position | None) -> tuple[Timed, Timed]:
    """What is beyond a position, read bare and as rows."""
    wanted = ask(settings, lambda connection: ranges.following(connection, names.METRICS, before, 10**12))
    assert wanted is not None

    def decoded() -> None:
        found = sum(decode.batch("raw_metrics", 0, each).num_rows for each in messages(settings, wanted, skip=False))
        assert found == rows, found

    bare = _timed(
        "a reader that does nothing with it", rows, lambda: sum(map(len, messages(settings, wanted, skip=False)))
    )
    return bare, _timed("a reader that makes rows of it", rows, decoded)


def measure(settings: Settings, rows: int, entries: int, batch: int) -> None:
    """Start, fill, read as the yardsticks do, ingest, sum up."""
    fill(settings, WARM, entries)
    pipeline = Pipeline(settings)
    with ExitStack() as stack:
        memory = stack.enter_context(Memory())
        parts = [_timed("Spark's start", WARM, lambda: stack.enter_context(pipeline))]
        parts += [_timed("the first batch and its sums", WARM, lambda: pipeline.run(once=True, most=batch))]
        mark = pipeline.lake.mark("raw_metrics", names.METRICS)
        assert mark is not None
        _timed("appended", rows, lambda: fill(settings, rows, entries))
        bare, made = _yardsticks(settings, rows, Position(mark.next, mark.digest))
        ingest = pipeline.ingest(batch)
        steady = _timed("the pipeline: into the raw table", rows, lambda: _read(ingest))
        parts += [steady, _timed("the pipeline: summed up", rows, lambda: roll_up(pipeline.spark, pipeline.lake))]
        pipeline.tidy()
        disk(pipeline.lake, rows + WARM)
        pipeline.spark.stop()
    memory.show()
    whole = Timed(rows + WARM, sum(each.seconds for each in parts))
    for words, mine in {
        "steady, after the first batch": steady,
        "the whole run, its start and sums too": whole,
    }.items():
        told = f"{mine.rate / made.rate:.0%} of the reader that makes rows, {mine.rate / bare.rate:.0%} of the bare one"
        print(f"{words:<38} {mine.seconds:>7.1f} s  {mine.rate:>10,.0f} rows/s: {told}")


def _read(ingest: Ingest) -> None:
    while planned := ingest.plan():
        for raw, wanted in planned:
            ingest.take(raw, wanted)


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
