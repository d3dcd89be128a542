"""Sums added up: rows of a table of sums, or of a finer one, as one row a key. DuckDB does it, in this process.

What tasks made of raw rows is small, and mostly has one row a key already; a job of Spark's for each table would take
longer to begin than this takes in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from amqpjobs.pipeline.tables import SCHEMAS, SUMS

_EXTREMES = {"_min_us": "min", "_max_us": "max", "rss_max_kb": "max", "last": "max"}
_EXAMPLES = ("jid", "error_message")
"""Of several rows those of the last."""


def written(finer: str, files: Sequence[str], name: str, part: Path) -> None:
    """Write what files of the table `finer` hold as rows of the table `name`, in a new folder `part`."""
    dated = f"date_trunc('{SUMS[name].span}', {SUMS[name].unit})::DATE AS date"
    with database() as opened:
        opened.execute(
            f"COPY (SELECT *, {dated} FROM ({_sql(finer, name)})) TO '{quoted(part)}'"
            " (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (date))",
            [list(files)],
        )


def added(name: str, files: Sequence[str]) -> pa.Table:
    """The rows of these files of the table `name`, one a key, without their `date`."""
    with database() as opened:
        return opened.sql(_sql(name, name), params=[list(files)]).to_arrow_table()


def database(threads: int = 2) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, whose times are UTC."""
    opened = duckdb.connect(config={"threads": threads, "preserve_insertion_order": False})
    opened.execute("SET TimeZone = 'UTC'")
    return opened


def quoted(path: Path) -> str:
    """A path as it stands between quotes in SQL."""
    return str(path).replace("'", "''")


def _sql(finer: str, name: str) -> str:
    """One row a key. Keys that have one row keep it as it is: of most histograms nothing need be unpacked."""
    key = (SUMS[name].unit, *SUMS[name].key)
    columns = [column for column in SCHEMAS[name].names if column != "date"]
    histograms = [column for column in columns if column.endswith("_histogram")]
    same = " AND ".join(f"t.{column} IS NOT DISTINCT FROM keys.{column}" for column in key)
    plain = ", ".join(
        f"any_value({each}) AS {each}" if each in key else f"{_merged(each, columns)} AS {each}"
        for each in columns
        if each not in histograms
    )
    listed = "".join(
        f", {each} AS (SELECT number, list({{'bucket': bucket, 'n': n, 'us': us}} ORDER BY bucket) AS {each} FROM"
        " (SELECT number, b.bucket AS bucket, sum(b.n)::BIGINT AS n, sum(b.us)::BIGINT AS us"
        f" FROM (SELECT number, unnest({each}) AS b FROM numbered WHERE twins > 1) GROUP BY 1, 2) GROUP BY 1)"
        for each in histograms
    )
    joined = "".join(f" LEFT JOIN {each} USING (number)" for each in histograms)
    whole = ", ".join(f"coalesce({each}, []) AS {each}" if each in histograms else each for each in columns)
    return (
        f"WITH t AS MATERIALIZED ({_rows(finer, name)}),"
        f" keys AS (SELECT {', '.join(key)}, count(*) AS twins, row_number() OVER () AS number FROM t GROUP BY ALL),"
        f" numbered AS MATERIALIZED (SELECT number, twins, t.* FROM t JOIN keys ON {same}){listed}"
        f" SELECT {', '.join(columns)} FROM numbered WHERE twins = 1 UNION ALL BY NAME"
        f" SELECT {whole} FROM (SELECT number, {plain} FROM numbered WHERE twins > 1 GROUP BY number){joined}"
    )


def _rows(finer: str, name: str) -> str:
    """The rows of the finer table in the other's columns."""
    unit, begins = SUMS[name].unit, SUMS[finer].unit
    columns = []
    for column in SCHEMAS[name].names:
        if column == unit:
            columns.append(f"date_trunc('{unit}', {begins}) AS {unit}")
        elif column == "last" and column not in SCHEMAS[finer].names:
            columns.append(f"{begins} AS last")
        elif column != "date":
            columns.append(column)
    return f"SELECT {', '.join(columns)} FROM read_parquet($1, hive_partitioning = false)"


def _merged(column: str, columns: Sequence[str]) -> str:
    if column in _EXAMPLES:
        return f"arg_max({column}, last)" if "last" in columns else f"any_value({column})"
    by = next((how for end, how in _EXTREMES.items() if column.endswith(end)), None)
    return f"{by}({column})" if by else f"sum({column})::BIGINT"
