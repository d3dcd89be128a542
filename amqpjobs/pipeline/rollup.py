"""Sums over the raw tables that merge: by minute, hour and day, and errors by hour.

Each table of sums is a fold of raw rows in the order of their offsets, with a mark of its own: what was added since is
summed up and appended as rows more. Several rows of one key are to be added, by whoever reads; `upkeep` does so for
good. Hence a late row counts in its own hour, however late it is, and no watermark drops it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqpjobs.pipeline import adding, summing
from amqpjobs.pipeline.files import UNFINISHED
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.tables import BY_NAME, ERRORS, ROLLUPS, SUMS


class _Fold(NamedTuple):
    """Tables of sums of one raw table: the first is made of its rows, the others are made of the first."""

    source: str
    tables: Sequence[str]


def roll_up(spark: SparkSession, lake: Lake) -> list[str]:
    """Bring all tables of sums up to their raw tables; the names of those that changed."""
    return [name for fold in _FOLDS for name in _brought_up(spark, lake, fold)]


def _brought_up(spark: SparkSession, lake: Lake, fold: _Fold) -> list[str]:
    """Append to tables the sums of what their source has beyond their marks; which of them changed.

    The raw rows are read once for all tables that stand at one mark.
    """
    upto = lake.mark(fold.source, BY_NAME[fold.source].stream)
    standing: dict[Mark | None, list[str]] = {}
    for name in fold.tables:
        standing.setdefault(lake.mark(name, fold.source), []).append(name)
    changed = []
    for done, names in standing.items():
        if upto is None or (done is not None and done[:2] == upto[:2]):
            continue
        with _summed(spark, lake, fold, done, upto) as sums:
            for name in names:
                _append(lake, name, fold, sums, upto)
        changed += names
    return changed


@contextmanager
def _summed(spark: SparkSession, lake: Lake, fold: _Fold, done: Mark | None, upto: Mark) -> Iterator[list[str]]:
    """Files with rows of the first table, of the raw rows between two marks; they are gone afterwards."""
    part, raw = lake.new_part(fold.tables[0]), lake.files(fold.source, done)
    try:
        sum_up = partial(summing.write, fold.tables[0], done, upto, part / UNFINISHED)
        yield spark.sparkContext.parallelize(raw, len(raw)).map(sum_up).collect() if raw else []
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _append(lake: Lake, name: str, fold: _Fold, sums: Sequence[str], upto: Mark) -> None:
    part = lake.new_part(name)
    try:
        if sums:
            adding.written(fold.tables[0], sums, name, part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    # What fails from here on may have failed after the commit: its files must stay.
    lake.append(name, part, fold.source, Mark(upto.epoch, upto.next))


def worker_hours(beats: DataFrame) -> DataFrame:
    """Hours by process. A beat has its time, so one that came twice counts once."""
    once = beats.where("bad IS NULL AND at IS NOT NULL").dropDuplicates(["identity", "nonce", "at"])
    hours = once.groupBy(f.date_trunc("hour", "at").alias("hour"), "identity", "nonce").agg(
        f.count("*").alias("beats"),
        f.sum(f.col("busy").cast("long")).alias("busy"),
        f.sum(f.col("concurrency").cast("long")).alias("concurrency"),
        f.max("rss_kb").alias("rss_max_kb"),
    )
    return _dated(hours, "heartbeats_hour")


def _dated(rows: DataFrame, name: str) -> DataFrame:
    """With the first day of what a file of the table spans."""
    each = SUMS[name]
    return rows.withColumn("date", f.to_date(f.date_trunc(each.span, each.unit)))


_FOLDS = (
    _Fold("raw_metrics", list(ROLLUPS)),
    _Fold("raw_dead", list(ERRORS)),
    _Fold("raw_retries", list(ERRORS)),
)
