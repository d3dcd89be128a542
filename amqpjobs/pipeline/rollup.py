"""Sums over the raw tables that merge: by minute, hour and day, and errors by hour.

Each table of sums is a fold of raw rows in the order of their offsets, with a mark of its own: what was added since is
summed up and appended as rows more. Several rows of one key are to be added, by whoever reads; `upkeep` does so for
good. Hence a late row counts in its own hour, however late it is, and no watermark drops it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from amqpjobs.history.buckets import BASE, NONE
from amqpjobs.pipeline import adding
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.tables import BY_NAME, ERRORS, ROLLUPS, SUMS

_CLASS = ROLLUPS["metrics_minute"].key
_LONGEST_MESSAGE = 500


class _Fold(NamedTuple):
    """Tables of sums of one raw table: how the first is made of its rows. The others are made of the first."""

    source: str
    tables: Sequence[str]
    of_raw: Callable[[DataFrame, str], DataFrame]


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
    part, files = lake.new_part(fold.tables[0]), lake.files(fold.source, done)
    try:
        if files:
            rows = spark.read.parquet(*files).where(_between(done, upto))
            fold.of_raw(rows, fold.tables[0]).write.parquet(str(part))
        yield sorted(map(str, part.glob("*.parquet")))
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


def _between(done: Mark | None, upto: Mark) -> Column:
    """Rows at or beyond one mark and below the other."""
    place = f.struct("epoch", "offset")
    below = place < f.struct(f.lit(upto.epoch), f.lit(upto.next).cast("long"))
    if done is None:
        return below
    return below & (place >= f.struct(f.lit(done.epoch), f.lit(done.next).cast("long")))


def of_runs(rows: DataFrame, name: str) -> DataFrame:
    """Sums of raw rows."""
    return _merged(_of_runs(rows, ROLLUPS[name].unit), name)


def _of_runs(rows: DataFrame, unit: str) -> DataFrame:
    """Each run as two figures, its run time and its wait. Runs that were taken and not run are not counted."""
    runs = rows.where("bad IS NULL AND status IN ('success', 'failed')")
    figures = f.expr(
        "stack(2, 'run', run_us, 1L, if(status = 'failed', 1L, 0L), if(attempt > 1, 1L, 0L),"
        " 'wait', wait_us, 0L, 0L, 0L) AS (kind, us, count, failed, retried)"
    )
    each = runs.select(f.date_trunc(unit, "at").alias(unit), *_CLASS, figures)
    return each.select(
        unit,
        *_CLASS,
        "kind",
        _bucket().alias("bucket"),
        "count",
        "failed",
        "retried",
        "us",
        f.expr("if(us IS NULL, 0L, 1L)").alias("n"),
        f.col("us").alias("least"),
        f.col("us").alias("most"),
    )


def _bucket() -> Column:
    inside = f.floor(f.log(f.col("us").cast("double")) / f.log(f.lit(BASE))).cast("int")
    return f.when(f.col("us") < 1, f.lit(NONE)).otherwise(inside)  # of no duration: null


def _merged(figures: DataFrame, name: str) -> DataFrame:
    """Figures as rows of a table of sums, one a key."""
    key = (ROLLUPS[name].unit, *ROLLUPS[name].key)
    sums = [f.sum(each).alias(each) for each in ("count", "failed", "retried", "n", "us")]
    extremes = [f.min("least").alias("least"), f.max("most").alias("most")]
    buckets = figures.groupBy(*key, "kind", "bucket").agg(*sums, *extremes)
    of = {kind: f.col("kind") == kind for kind in ("run", "wait")}
    filled = f.col("bucket").isNotNull()
    columns: list[Column] = [f.sum(each).alias(each) for each in ("count", "failed", "retried")]
    for kind, mine in of.items():
        columns += [
            f.sum(f.when(mine, f.col("n"))).alias(f"{kind}_n"),
            f.coalesce(f.sum(f.when(mine, f.col("us"))), f.lit(0)).alias(f"{kind}_us"),
            f.min(f.when(mine, f.col("least"))).alias(f"{kind}_min_us"),
            f.max(f.when(mine, f.col("most"))).alias(f"{kind}_max_us"),
        ]
    histograms = [
        f.sort_array(f.collect_list(f.when(mine & filled, f.struct("bucket", "n", "us")))).alias(f"{kind}_histogram")
        for kind, mine in of.items()
    ]
    return _dated(buckets.groupBy(*key).agg(*columns, *histograms), name)


def errors(rows: DataFrame, name: str) -> DataFrame:
    """Failures of a raw table by hour, class, queue and kind of error, with one of their jobs and its message."""
    each = ERRORS[name]
    failures = rows.where("bad IS NULL AND type IN ('retry', 'dead_job')")
    first = f.struct("epoch", "offset", "item")
    hours = failures.groupBy(f.date_trunc(each.unit, "at").alias(each.unit), *each.key).agg(
        f.count("*").alias("count"),
        f.sum(f.expr("if(type = 'dead_job', 1L, 0L)")).alias("dead"),
        f.min_by("jid", first).alias("jid"),
        f.substring(f.min_by("error_message", first), 1, _LONGEST_MESSAGE).alias("error_message"),
    )
    return _dated(hours, name)


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
    _Fold("raw_metrics", list(ROLLUPS), of_runs),
    _Fold("raw_dead", list(ERRORS), errors),
    _Fold("raw_retries", list(ERRORS), errors),
)
