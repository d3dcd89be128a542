"""One range of a stream into its table, once: Spark reads and writes files, one Delta commit makes them rows.

There is no checkpoint that could be lost, or that replays for ever a range which retention took: what was read is what
the table's mark says.
"""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from amqpjobs.pipeline import files
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.planner import Planner
from amqpjobs.pipeline.repeats import Repeats
from amqpjobs.pipeline.rollup import worker_hours
from amqpjobs.pipeline.tables import RAW, Raw
from amqpjobs.streams.ranges import Position, Range

log = logging.getLogger("amqpjobs.pipeline")


@dataclass(frozen=True, slots=True)
class Step:
    """What one range came to: rows in the table, of them bad, repeated messages left out, offsets lost to retention."""

    table: str
    stream: str
    messages: int
    rows: int
    bad: int
    repeated: int
    lost: int
    behind: int
    seconds: float


class StreamAnew(Exception):
    """The stream was deleted and made anew while it was read: nothing of it was kept."""


class Ingest:
    """Fills the raw tables. `most`: messages of a range; `slices`: tasks that read it."""

    def __init__(self, spark: SparkSession, lake: Lake, planner: Planner, *, url: str, most: int, slices: int) -> None:
        self._spark, self._lake, self._planner = spark, lake, planner
        self._options = {"url": url, "slices": str(slices), "onTrimmed": "fail"}
        self._most = most
        self._repeats = {raw.name: Repeats(lake, raw.name, raw.stream) for raw in RAW if raw.keep}

    def plan(self) -> list[tuple[Raw, Range]]:
        """What is to be read now. Raises BrokerError."""
        marks = {raw.stream: self._mark(raw) for raw in RAW}
        found = self._planner.following(marks, self._most)
        return [(raw, found[raw.stream]) for raw in RAW if raw.stream in found]

    def take(self, raw: Raw, wanted: Range) -> Step:
        """Read the range into the table. Raises BrokerError, StreamAnew, what Spark raises; then nothing is kept."""
        began = time.monotonic()
        before = self._mark(raw)
        mark = Mark((before.epoch if before else 0) + wanted.anew, wanted.end, wanted.digest or b"")
        if wanted.anew:
            log.warning("%s was made anew: its epoch %d begins", raw.stream, mark.epoch)
        if wanted.lost:
            log.warning("%s: retention took %d offsets unread", raw.stream, wanted.lost)
        target = raw.name if raw.keep else "heartbeats_hour"
        part = self._lake.new_part(target)
        try:
            count, bad, repeated = self._write(raw, wanted, mark, part)
            if not self._planner.same(raw.stream, Position(mark.next, mark.digest)):
                raise StreamAnew(raw.stream)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        # What fails from here on may have failed after the commit: its files must stay.
        self._lake.append(target, part, raw.stream, mark)
        if raw.keep:
            self._repeats[raw.name].appended()
        passed = time.monotonic() - began
        size = wanted.end - wanted.start
        behind = max(0, wanted.tail - wanted.end)
        return Step(raw.name, raw.stream, size, count, bad, repeated, wanted.lost, behind, passed)

    def _mark(self, raw: Raw) -> Mark | None:
        return self._lake.mark(raw.name if raw.keep else "heartbeats_hour", raw.stream)

    def _rows(self, raw: Raw, wanted: Range, mark: Mark, **more: str) -> DataFrame:
        told = {"stream": raw.stream, "rows": raw.name, "epoch": mark.epoch, "digest": mark.digest.hex()}
        span = {"start": wanted.start, "end": wanted.end}
        return self._spark.read.format("amqp_stream").options(**self._options, **told, **span, **more).load()

    def _write(self, raw: Raw, wanted: Range, mark: Mark, part: Path) -> tuple[int, int, int]:
        """The rows as files; how many, how many of them bad, and how many messages were repeats."""
        if not raw.keep:
            worker_hours(self._rows(raw, wanted, mark)).write.partitionBy("date").parquet(str(part))
            return 0, 0, 0
        files.keep(part, [row.file for row in self._rows(raw, wanted, mark, into=str(part)).collect()])
        repeated = self._repeats[raw.name].drop(part)
        return (*_counts(part), repeated)


def _counts(part: Path) -> tuple[int, int]:
    """Rows, and bad ones, of the files: from their footers."""
    rows = bad = 0
    for file in part.rglob("*.parquet"):
        metadata = pq.read_metadata(file)
        rows += metadata.num_rows
        at = metadata.schema.names.index("bad")
        told = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
        bad += sum(each.num_values - each.statistics.null_count for each in told)
    return rows, bad
