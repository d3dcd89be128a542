"""Rows as Parquet files, written by the Python process that read them: a row costs Spark's JVM three times as much.

A task writes below `_temporary`, and tells the names when it has all of its slice; the driver then moves those files to
their place. What a task wrote that was killed or failed is so never part of a table.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqpjobs.pipeline.tables import FILES

GROUP = 100_000
"""Rows of a row group, about: few are slow to read, many take memory."""
UNFINISHED = "_temporary"
"""The folder in a part that the lake's next writer clears away with it."""
ENCODINGS = {
    **dict.fromkeys(("offset", "at", "run_us", "wait_us"), "DELTA_BINARY_PACKED"),
    "jid": "DELTA_LENGTH_BYTE_ARRAY",
}
"""Of columns whose values seldom come again, so that a dictionary of them is larger than they are: numbers of few bits,
and text whose lengths, which are all one, are kept apart from it."""


def write(batches: Iterable[pa.RecordBatch], part: Path) -> pa.RecordBatch:
    """Write the rows, a file for each `date`; their names."""
    files: dict[str, _File] = {}
    with ExitStack() as open_files:
        for batch in batches:
            for date, rows in _by_date(batch):
                if date not in files:
                    files[date] = open_files.enter_context(_File(part / UNFINISHED / date, rows.schema))
                files[date].add(rows)
    names = [f"{date}/{file.path.name}" for date, file in files.items()]
    return pa.RecordBatch.from_pydict({"file": names}, schema=FILES)


def keep(part: Path, names: Iterable[str]) -> None:
    """Move what tasks told to its place below `part`, and remove the rest."""
    for name in names:
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / UNFINISHED / name).rename(part / name)
    shutil.rmtree(part / UNFINISHED, ignore_errors=True)


def _by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    dates, rows = batch["date"], batch.drop_columns(["date"])
    different = pc.unique(dates)
    for date in different:
        yield f"date={date.as_py().isoformat()}", rows.filter(pc.equal(dates, date)) if len(different) > 1 else rows


class _File:
    """One file; rows are gathered into groups."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{uuid.uuid4().hex}.parquet"
        self._writer = pq.ParquetWriter(
            self.path,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in ENCODINGS],
            column_encoding={name: how for name, how in ENCODINGS.items() if name in schema.names},
        )
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks(), row_group_size=2 * GROUP)
        self._waiting, self._rows = [], 0
