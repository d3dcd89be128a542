"""The sums of one file of raw rows, made by DuckDB in the task of Spark's that has the file.

Spark's own aggregation took ninety times as much CPU a row, and twenty seconds to be compiled.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from amqpjobs.history.buckets import BASE, NONE
from amqpjobs.pipeline import adding
from amqpjobs.pipeline.lake import Mark
from amqpjobs.pipeline.tables import ERRORS, ROLLUPS

_LONGEST_MESSAGE = 500
_MICROS = {"minute": 60_000_000, "hour": 3_600_000_000}
_FIGURES = ("n", "us", "min_us", "max_us")


def write(name: str, done: Mark | None, upto: Mark, part: Path, raw: str) -> str:
    """Write the sums of a raw file's rows between two marks, as rows of the table `name`; the new file in `part`."""
    part.mkdir(parents=True, exist_ok=True)
    file = part / f"{uuid.uuid4().hex}.parquet"
    rows = f"SELECT * FROM read_parquet($1, hive_partitioning = false) WHERE bad IS NULL AND {_between(done, upto)}"
    sql = _runs(name, rows) if name in ROLLUPS else _errors(name, rows)
    with adding.database(threads=1) as database:
        database.execute(f"COPY ({sql}) TO '{adding.quoted(file)}' (FORMAT parquet, COMPRESSION zstd)", [raw])
    return str(file)


def _between(done: Mark | None, upto: Mark) -> str:
    """Rows at or beyond one mark and below the other."""
    below = f'(epoch < {upto.epoch} OR (epoch = {upto.epoch} AND "offset" < {upto.next}))'
    if done is None:
        return below
    return f'{below} AND (epoch > {done.epoch} OR (epoch = {done.epoch} AND "offset" >= {done.next}))'


def _runs(name: str, rows: str) -> str:
    """Each run as two figures, its run time and its wait. Runs that were taken and not run are not counted."""
    key = ", ".join(ROLLUPS[name].key)
    begins, unit = _begins(ROLLUPS[name].unit)
    kinds = " UNION ALL ".join(_kind(kind, key, begins) for kind in ("run", "wait"))
    each = ", ".join(f"{_figure(figure, kind)} AS {kind}_{figure}" for kind in ("run", "wait") for figure in _FIGURES)
    histograms = ", ".join(
        "coalesce(list({'bucket': bucket, 'n': n, 'us': us} ORDER BY bucket)"
        f" FILTER (kind = '{kind}' AND bucket IS NOT NULL), []) AS {kind}_histogram"
        for kind in ("run", "wait")
    )
    counts = ", ".join(f"sum({count})::BIGINT AS {count}" for count in ("count", "failed", "retried"))
    return (
        f"WITH runs AS MATERIALIZED ({rows} AND status IN ('success', 'failed')), buckets AS ({kinds})"
        f" SELECT {unit}, {key}, {counts}, {each}, {histograms} FROM buckets GROUP BY begins, {key}"
    )


def _kind(kind: str, key: str, begins: str) -> str:
    """Of one kind of figure: by bucket; what told none is in a bucket that is null. Runs are counted once."""
    us = f"{kind}_us"
    counted = ("count(*)", "count_if(status = 'failed')", "count_if(attempt > 1)") if kind == "run" else ("0",) * 3
    counts = ", ".join(f"{how} AS {name}" for how, name in zip(counted, ("count", "failed", "retried"), strict=True))
    return (
        f"SELECT '{kind}' AS kind, {begins} AS begins, {key}, {counts},"
        f" CASE WHEN {us} < 1 THEN {NONE} ELSE floor(ln({us}::DOUBLE) / ln({BASE}::DOUBLE))::INTEGER END AS bucket,"
        f" count({us}) AS n, coalesce(sum({us}), 0)::BIGINT AS us, min({us}) AS min_us, max({us}) AS max_us"
        f" FROM runs GROUP BY begins, {key}, bucket"
    )


def _figure(figure: str, kind: str) -> str:
    how = {"min_us": "min", "max_us": "max"}.get(figure, "sum")
    return f"({how}({figure}) FILTER (kind = '{kind}'))::BIGINT"


def _errors(name: str, rows: str) -> str:
    """Failures by class, queue and kind of error, with the first of their jobs and its message."""
    key = ", ".join(ERRORS[name].key)
    begins, unit = _begins(ERRORS[name].unit)
    first = 'first({} ORDER BY epoch, "offset", item)'
    return (
        f"SELECT {unit}, {key}, count(*) AS count, count_if(type = 'dead_job')::BIGINT AS dead,"
        f" {first.format('jid')} AS jid, left({first.format('error_message')}, {_LONGEST_MESSAGE}) AS error_message"
        f" FROM (SELECT *, {begins} AS begins FROM ({rows} AND type IN ('retry', 'dead_job') AND \"at\" IS NOT NULL))"
        f" GROUP BY begins, {key}"
    )


def _begins(unit: str) -> tuple[str, str]:
    """When the unit of a row began, in microseconds, which group ten times as quick as times with a zone; as a time."""
    return f'epoch_us("at") // {_MICROS[unit]} * {_MICROS[unit]}', f"make_timestamptz(begins) AS {unit}"
