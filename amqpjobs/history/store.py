"""The lake's tables for DuckDB: the files of the newest version, of the days that a question is about."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable

MISSING = "long-range history needs an extra: pip install 'amqpjobs[history]'"
FRESH_SECONDS = 5.0
"""How long a version of a table may be taken for the newest."""

Row = tuple[Any, ...]


class HistoryMissing(Exception):
    """The packages that read the lake are not installed; the text says how to get them."""


class _Table:
    """One Delta table and its files by the first day of what they hold."""

    def __init__(self, path: Path) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        self._path = path
        self._table: DeltaTable = DeltaTable(str(path))
        self._looked = time.monotonic()
        self._version = -1
        self._files: list[tuple[datetime.date, str]] = []

    def files(self, low: datetime.date, high: datetime.date) -> list[str]:
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self._looked = time.monotonic()
            self._table.update_incremental()
        if self._table.version() != self._version:
            self._version = self._table.version()
            self._files = self._listed()
        return [path for date, path in self._files if low <= date <= high]

    def _listed(self) -> list[tuple[datetime.date, str]]:
        actions = self._table.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        columns = (actions.column(name).to_pylist() for name in ("partition.date", "path"))
        return sorted((date, str(self._path / path)) for date, path in zip(*columns, strict=True))


class Store:
    """Answers SQL over the tables in `folder`. Safe for several threads.

    Raises HistoryMissing where the extra is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import deltalake  # noqa: F401, PLC0415 - an extra
            import duckdb  # noqa: PLC0415 - an extra
        except ImportError:
            raise HistoryMissing(MISSING) from None
        self._folder = folder.absolute()
        self._database: duckdb.DuckDBPyConnection = duckdb.connect(":memory:", config={"threads": 2})
        self._database.execute("SET TimeZone = 'UTC'")
        # A file never changes under its name: reading the footers of years of files anew would take most of the time.
        self._database.execute("SET parquet_metadata_cache = true")
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()

    def scan(self, name: str, span: Span) -> str | None:
        """The table for SQL: of its files, those that may hold something of `span`; None where there is none."""
        with self._lock:
            files = self._files(name, span)
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
        return f"read_parquet([{listed}], hive_partitioning = false)" if files else None

    def rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Rows of `sql` with `values` for its parameters."""
        with self._lock:
            cursor = self._database.cursor()
        with cursor:
            found: list[Row] = cursor.execute(sql, list(values)).fetchall()
        return found

    def sealed(self, sql: str) -> list[Row]:
        """Rows of `sql`, which may be a stranger's: from now on this store reads no file, whatever it is asked."""
        with self._database.cursor() as cursor:
            cursor.execute("SET enable_external_access = false")
            cursor.execute("SET lock_configuration = true")
            found: list[Row] = cursor.execute(sql).fetchall()
        return found

    def _files(self, name: str, span: Span) -> list[str]:
        if name not in self._tables:
            if not (self._folder / name / "_delta_log").is_dir():
                return []
            self._tables[name] = _Table(self._folder / name)
        return self._tables[name].files(*span)


class Span(NamedTuple):
    """The `date`s of files that may hold something of a time."""

    low: datetime.date
    high: datetime.date


def span(since: float, until: float, days: int = 0) -> Span:
    """Of the times from `since` to before `until` (seconds since 1970); a file's date lies up to `days` before them."""
    first, last = (datetime.datetime.fromtimestamp(each, datetime.UTC).date() for each in (since, until))
    return Span(first - datetime.timedelta(days=days), last)
