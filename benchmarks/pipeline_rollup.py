"""How quick raw rows are summed up: `python -m benchmarks.pipeline_rollup [ROWS [DAYS]]`: 10,000,000 of 10 days.

No broker: the raw table is made without Spark. The yardstick is Spark counting the same rows by class, which reads
little more than one column. Then upkeep adds up and compacts. Says what the lake takes on disk for each job, and the
most memory that the driver's process and its JVM took.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.rollup import roll_up
from amqpjobs.pipeline.session import session
from amqpjobs.pipeline.tables import SCHEMAS
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings
from benchmarks.pipeline_lake import fill_raw
from benchmarks.pipeline_memory import Memory


def disk(lake: Lake, rows: int) -> None:
    """Print what the newest version of each table takes, by job."""
    total = 0
    for name in SCHEMAS:
        actions = lake.table(name).get_add_actions(flatten=True)
        size = sum(actions.column("size_bytes").to_pylist()) if actions.num_rows else 0
        total += size
        if size:
            print(f"  {name:<16} {size / rows:>7.2f} bytes a job")
    print(f"  {'all':<16} {total / rows:>7.2f} bytes a job")


def _timed(words: str, rows: int, do: Callable[[], object]) -> None:
    began = time.monotonic()
    do()
    passed = time.monotonic() - began
    print(f"{words:<36} {passed:>7.1f} s  {rows / passed:>12,.0f} rows/s", flush=True)


def main() -> None:
    """Make the rows, sum them up, tidy."""
    given = [int(each.replace(",", "")) for each in sys.argv[1:]]
    rows, days = (*given, *(10_000_000, 10)[len(given) :])
    with tempfile.TemporaryDirectory() as folder, Memory() as memory:
        lake, settings = Lake(Path(folder)), Settings(lake_raw_age="50Y", lake_minutes_age="50Y")
        _timed("made without Spark", rows, lambda: fill_raw(lake, days, 100, rows))
        spark = session(settings)
        files = lake.files("raw_metrics", None)
        _timed(
            "yardstick: counted by class", rows, lambda: spark.read.parquet(*files).groupBy("class").count().collect()
        )
        _timed("yardstick again", rows, lambda: spark.read.parquet(*files).groupBy("class").count().collect())
        _timed("summed up", rows, lambda: roll_up(spark, lake))
        _timed("tidied", rows, Upkeep(lake, settings).run)
        disk(lake, rows)
        spark.stop()
    memory.show()


if __name__ == "__main__":
    main()
