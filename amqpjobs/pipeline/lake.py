"""The lake: Delta tables in a folder, and how far each was filled, which changes in the same commit as its rows.

A mark says which epoch of which stream, or of which raw table, a table holds up to which offset. It is kept in Delta's
own transaction identifiers, so that rows and mark become visible together, or not at all: whoever repeats work after a
crash sees what was done, and does the rest.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
)
from deltalake.transaction import AddAction

from amqpjobs.pipeline import layout
from amqpjobs.pipeline.files import ENCODINGS
from amqpjobs.pipeline.tables import SCHEMAS, SUMS

CONFIGURATION = {
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "50",
}
_TOLD_OF_RAW = ("epoch", "offset")
_TOLD = {**{name: (each.unit,) for name, each in SUMS.items()}, "jids": ("hash",)}
"""The columns whose extremes each file tells: of sums, the time."""
COMPACT = WriterProperties(
    compression="ZSTD",
    column_properties={
        name: ColumnProperties(dictionary_enabled=False, encoding=how) for name, how in ENCODINGS.items()
    },
)
"""How raw rows are written again: with `files.write`'s encodings, without which they take a sixth more."""
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


class LakeBusy(Exception):
    """Another process writes to this lake."""


class Mark(NamedTuple):
    """How far: `epoch` counts the streams of one name, `next` is the first offset that is not in yet.

    `digest`: of the message at `next - 1`; empty where the source is a table.
    """

    epoch: int
    next: int
    digest: bytes = b""


class Lake:
    """The tables in `folder`. One process at a time may write (`writing`); any number may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._tables: dict[str, DeltaTable] = {}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock of the one writer, and clear away what a killed one left. Raises LakeBusy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".writer").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise LakeBusy(f"{self.folder} is written by process {lock.read() or '(unknown)'}") from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._clear()
            yield

    def table(self, name: str) -> DeltaTable:
        """The table as it is now; created when it is missing."""
        table = self._tables.get(name)
        if table is None:
            # Statistics of a column that some file lacks would hide its rows from filters on that column.
            columns = ",".join(_TOLD.get(name, _TOLD_OF_RAW))
            told = {**CONFIGURATION, "delta.dataSkippingStatsColumns": columns}
            where, schema = str(self.folder / name), SCHEMAS[name]
            table = DeltaTable.create(where, schema, mode="ignore", partition_by=["date"], configuration=told)
            self._tables[name] = table
        table.update_incremental()
        return table

    def mark(self, name: str, source: str) -> Mark | None:
        """How far the table holds `source`; None when it holds nothing of it."""
        table = self.table(name)
        epoch = table.transaction_version(f"{source}:epoch")
        if epoch is None:
            return None
        place = f"{source}:{epoch}"
        high, low = (table.transaction_version(f"{place}:{part}") for part in ("high", "low"))
        digest = b"" if high is None or low is None else _joined(high, low)
        return Mark(epoch, table.transaction_version(f"{place}:next") or 0, digest)

    def new_part(self, name: str) -> Path:
        """A folder of the table's that does not exist yet, for files that `append` will make part of it."""
        self.table(name)
        return self.folder / name / f"part-{uuid.uuid4().hex}"

    def append(self, name: str, part: Path, source: str, mark: Mark) -> int:
        """Make the files in `part` rows of the table and move its mark, in one commit; the number of rows."""
        actions = [self._action(name, file) for file in sorted(part.rglob("*.parquet"))] if part.exists() else []
        rows = sum(count for _, count in actions)
        self.table(name).create_write_transaction(
            [action for action, _ in actions],
            "append",
            SCHEMAS[name],
            partition_by=["date"],
            commit_properties=CommitProperties(app_transactions=_transactions(source, mark)),
            post_commithook_properties=_HOOKS,
        )
        return rows

    def replace(self, name: str, date: datetime.date, rows: pa.Table) -> None:
        """Make these rows, which have no `date`, all that a table has of one; its marks stay as they are."""
        part = self.new_part(name)
        file = part / f"date={date.isoformat()}" / f"{uuid.uuid4().hex}.parquet"
        try:
            layout.write(name, rows, file)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        # What fails from here on may have failed after the commit: the file must stay.
        self.table(name).create_write_transaction(
            [self._action(name, file)[0]],
            "overwrite",
            SCHEMAS[name],
            partition_by=["date"],
            partition_filters=[("date", "=", date.isoformat())],
            commit_properties=CommitProperties(custom_metadata={"upkeep": "added up"}),
            post_commithook_properties=_HOOKS,
        )

    def files(self, name: str, after: Mark | None) -> list[str]:
        """The files of a raw table that may hold rows at or beyond `after`."""
        table = self.table(name)
        found = table.get_add_actions(flatten=True)
        paths, epochs, offsets = (_column(found, each) for each in ("path", "max.epoch", "max.offset"))
        wanted = []
        for path, epoch, offset in zip(paths, epochs, offsets, strict=True):
            # A file whose statistics are missing may hold anything.
            if after is None or epoch is None or offset is None or (epoch, offset) >= after[:2] or epoch > after.epoch:
                wanted.append(str(self.folder / name / path))
        return wanted

    def _action(self, name: str, file: Path) -> tuple[AddAction, int]:
        """The entry in Delta's log of a file that Spark wrote under `date=…`."""
        metadata = pq.read_metadata(file)
        date = file.parent.name.removeprefix("date=")
        low, high = _extremes(metadata, _TOLD.get(name, _TOLD_OF_RAW))
        stats = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": {}}
        path = file.relative_to(self.folder / name).as_posix()
        added = AddAction(path, file.stat().st_size, {"date": date}, int(time.time() * 1000), True, json.dumps(stats))
        return added, metadata.num_rows

    def _clear(self) -> None:
        """Spark's half-written files are in no commit, and Delta's own vacuum does not see them."""
        for unfinished in self.folder.glob("*/part-*/_temporary"):
            shutil.rmtree(unfinished.parent, ignore_errors=True)


def _transactions(source: str, mark: Mark) -> list[Transaction]:
    place = f"{source}:{mark.epoch}"
    found = [Transaction(f"{source}:epoch", mark.epoch), Transaction(f"{place}:next", mark.next)]
    if mark.digest:
        high, low = (int.from_bytes(half, "big", signed=True) for half in (mark.digest[:8], mark.digest[8:]))
        found += [Transaction(f"{place}:high", high), Transaction(f"{place}:low", low)]
    return found


def _joined(high: int, low: int) -> bytes:
    return b"".join(half.to_bytes(8, "big", signed=True) for half in (high, low))


def _extremes(metadata: Any, columns: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and the greatest of these columns in a Parquet file, as JSON values."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            name, told = column.path_in_schema, column.statistics
            if name in columns and told is not None and told.has_min_max:
                low[name] = min(low.get(name, told.min), told.min)
                high[name] = max(high.get(name, told.max), told.max)
    return _spelled(low), _spelled(high)


def _spelled(extremes: dict[str, Any]) -> dict[str, Any]:
    times = {name: at.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for name, at in extremes.items() if hasattr(at, "strftime")}
    return {**extremes, **times}


def _column(found: Any, name: str) -> list[Any]:
    return list(found.column(name).to_pylist()) if name in found.schema.names else [None] * found.num_rows
