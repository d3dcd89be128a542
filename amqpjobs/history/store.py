"""The lake's tables for DuckDB: the files of the newest version, of the days that a question is about."""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable

MISSING = "long-range history needs an extra: pip install 'amqpjobs[history]'"
FRESH_SECONDS = 5.0
"""How long a version of a table may be taken for the newest."""

Row = tuple[Any, ...]
Place = tuple[int, int]
"""An epoch and an offset."""


class HistoryMissing(Exception):
    """The packages that read the lake are not installed; the text says how to get them."""


class NoLake(Exception):
    """There is no table; the text says where it was looked for, and what to set."""


def lake_in(folder: Path) -> Path:
    """The folder, if there is a lake in it. Raises NoLake: a report of nothing would pass for one that all is well."""
    if not any(folder.glob("*/_delta_log")):
        raise NoLake(
            f"there is no lake in {folder.absolute()}: set AMQPJOBS_LAKE_DIR to the folder that "
            "`amqpjobs pipeline run` fills"
        )
    return folder


class _File(NamedTuple):
    date: datetime.date
    path: str
    end: Place | None
    """Of a raw table: the epoch and offset of the last row, where the file tells."""
    last: datetime.datetime | None
    """Of a table of sums: when the last unit of time in it begins, where the file tells."""


class _Table:
    """One Delta table and its files by the first day of what they hold."""

    def __init__(self, path: Path) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        self._path = path
        self._table: DeltaTable = DeltaTable(str(path))
        self._looked = time.monotonic()
        self._version = -1
        self._files: list[_File] = []

    def files(self) -> list[_File]:
        """Those of the newest version, by date."""
        self.refresh()
        if self._table.version() != self._version:
            self._version = self._table.version()
            self._files = self._listed()
        return self._files

    def mark(self, source: str) -> Place | None:
        """Up to which epoch and offset the table holds a raw one; None: nothing of it."""
        self.refresh()
        epoch = self._table.transaction_version(f"{source}:epoch")
        return None if epoch is None else (epoch, self._table.transaction_version(f"{source}:{epoch}:next") or 0)

    def refresh(self) -> None:
        """See that the version is not older than FRESH_SECONDS."""
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self._looked = time.monotonic()
            self._table.update_incremental()

    def _listed(self) -> list[_File]:
        actions = self._table.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        unit = self._path.name.rpartition("_")[2]
        dates, paths, epochs, offsets, lasts = (
            actions.column(name).to_pylist() if name in actions.schema.names else [None] * actions.num_rows
            for name in ("partition.date", "path", "max.epoch", "max.offset", f"max.{unit}")
        )
        ends = [None if None in place else place for place in zip(epochs, offsets, strict=True)]
        return sorted(
            (
                _File(date, str(self._path / path), end, last)
                for date, path, end, last in zip(dates, paths, ends, lasts, strict=True)
            ),
            key=lambda file: file[:2],
        )


class Store:
    """Answers SQL over the tables in `folder`. Safe for several threads.

    Raises HistoryMissing where the extra is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import deltalake  # noqa: F401, PLC0415 - an extra
            import duckdb  # noqa: PLC0415 - an extra
            import numpy  # noqa: F401, PLC0415 - an extra, which takes its time when it is first asked for
        except ImportError:
            raise HistoryMissing(MISSING) from None
        self._folder = folder.absolute()
        self._database: duckdb.DuckDBPyConnection = duckdb.connect(":memory:", config={"threads": 2})
        # GLOBAL: a cursor begins with the settings of the database, not with those of the connection it was made of.
        self._database.execute("SET GLOBAL TimeZone = 'UTC'")
        # A file never changes under its name: reading the footers of years of files anew would take most of the time.
        self._database.execute("SET GLOBAL parquet_metadata_cache = true")
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()

    def files(self, name: str, span: Span) -> list[str]:
        """The table's files that may hold something of `span`."""
        return [file.path for file in self._files(name) if span.low <= file.date <= span.high]

    def scan(self, name: str, span: Span) -> str | None:
        """The table for SQL: its `files`; None where there is none."""
        return self._scan(self.files(name, span))

    def scan_days(self, name: str, days: Container[datetime.date], span: Span, beyond: Place | None) -> str | None:
        """As `scan`, of a raw table: files of these days only, and those that may hold rows at or beyond a place."""
        wanted = []
        for file in self._files(name):
            unknown = beyond is None or file.end is None or file.end >= beyond
            if span.low <= file.date <= span.high and (unknown or file.date in days):
                wanted.append(file.path)
        return self._scan(wanted)

    def mark(self, name: str, source: str) -> Place | None:
        """Up to which epoch and offset a table holds a raw one; None: nothing of it."""
        with self._lock:
            table = self._table(name)
            return None if table is None else table.mark(source)

    def newest(self, name: str) -> float | None:
        """When the last unit of time begins that a table of sums has rows of; None where some file does not tell."""
        lasts = [file.last.timestamp() if file.last else math.inf for file in self._files(name)]
        newest = max(lasts, default=math.inf)
        return None if newest == math.inf else newest

    def _scan(self, files: Sequence[str]) -> str | None:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
        return f"read_parquet([{listed}], hive_partitioning = false)" if files else None

    def rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Rows of `sql` with `values` for its parameters."""
        with self._lock:
            cursor = self._database.cursor()
        with cursor:
            found: list[Row] = cursor.execute(sql, list(values)).fetchall()
        return found

    def arrow(self, sql: str, values: Sequence[Any]) -> pa.Table:
        """As `rows`, in columns."""
        with self._lock:
            cursor = self._database.cursor()
        with cursor:
            return cursor.sql(sql, params=list(values)).to_arrow_table()

    def sealed(self, sql: str) -> list[Row]:
        """Rows of `sql`, which may be a stranger's: from now on this store reads no file, whatever it is asked."""
        with self._database.cursor() as cursor:
            cursor.execute("SET enable_external_access = false")
            cursor.execute("SET lock_configuration = true")
            found: list[Row] = cursor.execute(sql).fetchall()
        return found

    def _files(self, name: str) -> list[_File]:
        with self._lock:
            table = self._table(name)
            return [] if table is None else table.files()

    def _table(self, name: str) -> _Table | None:
        if name not in self._tables:
            if not (self._folder / name / "_delta_log").is_dir():
                return None
            self._tables[name] = _Table(self._folder / name)
        return self._tables[name]


class Span(NamedTuple):
    """The `date`s of files that may hold something of a time."""

    low: datetime.date
    high: datetime.date


def span(since: float, until: float, days: int = 0) -> Span:
    """Of the times from `since` to before `until` (seconds since 1970); a file's date lies up to `days` before them."""
    first, last = (datetime.datetime.fromtimestamp(each, datetime.UTC).date() for each in (since, until))
    return Span(first - datetime.timedelta(days=days), last)
