"""The index of jids: on which days the raw tables have something of a job, so that its life of years is found at once.

DuckDB makes it, once a day, in the process that runs the pipeline: there is nothing to distribute in a few bytes a job.
Entries that it does not have yet are searched by whoever reads (`history.jids`): it has a mark for each raw table.
"""

from __future__ import annotations

import datetime
import shutil

import duckdb

from amqpjobs.history.queries import JID_HASH
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.layout import INDEX_GROUP
from amqpjobs.pipeline.tables import RAW, Raw

FEW = 10
"""Files of a month that are let be: each day brings one for each raw table."""
_INDEX = """COPY (
    SELECT *, date_trunc('month', day)::DATE AS date FROM (
        SELECT DISTINCT {hash} AS hash, regexp_extract(filename, '/date=([0-9-]+)/', 1)::DATE AS day
        FROM read_parquet($1, filename = true, hive_partitioning = false)
        WHERE jid IS NOT NULL AND (epoch, "offset") >= ($2, $3) AND (epoch, "offset") < ($4, $5)
    ) ORDER BY hash
) TO '{part}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group}, PARTITION_BY (date))"""
_ADDED = "SELECT DISTINCT hash, day FROM read_parquet($1, hive_partitioning = false)"


def index(lake: Lake) -> None:
    """Add what the raw tables have beyond the index's marks, and join its small files. The caller may write."""
    # One thread: it writes rows in their order.
    with duckdb.connect(config={"threads": 1}) as database:
        for raw in RAW:
            if raw.keep:
                _add(database, lake, raw)
        for date, files in _crowded(lake).items():
            lake.replace("jids", date, database.sql(_ADDED, params=[files]).to_arrow_table())


def _add(database: duckdb.DuckDBPyConnection, lake: Lake, raw: Raw) -> None:
    done, upto = lake.mark("jids", raw.name), lake.mark(raw.name, raw.stream)
    if upto is None or (done is not None and done[:2] == upto[:2]):
        return
    part, files = lake.new_part("jids"), lake.files(raw.name, done)
    low, high = (0, 0) if done is None else done[:2], upto[:2]
    try:
        if files:
            place = str(part).replace("'", "''")
            database.execute(
                _INDEX.format(hash=JID_HASH.format("jid"), group=INDEX_GROUP, part=place), [files, *low, *high]
            )
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    # What fails from here on may have failed after the commit: its files must stay.
    lake.append("jids", part, raw.name, Mark(*high))


def _crowded(lake: Lake) -> dict[datetime.date, list[str]]:
    found: dict[datetime.date, list[str]] = {}
    actions = lake.table("jids").get_add_actions(flatten=True)
    if actions.num_rows:
        for path, date in zip(actions["path"].to_pylist(), actions["partition.date"].to_pylist(), strict=True):
            found.setdefault(date, []).append(str(lake.folder / "jids" / path))
    return {date: files for date, files in found.items() if len(files) > FEW}


def age(lake: Lake, now: float) -> float:
    """Seconds from the last change of the index to `now`; infinite where it is empty."""
    actions = lake.table("jids").get_add_actions(flatten=True)
    milliseconds = actions["modification_time"].to_pylist() if actions.num_rows else []
    return now - max(milliseconds) / 1000 if milliseconds else float("inf")
