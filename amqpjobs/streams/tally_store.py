"""The dashboard's record of what ran: the tally of `job_metrics` in a SQLite file of its own.

The position in the stream and the sums that it stands for change in one transaction: after a crash the record goes
on exactly where it was, nothing counted twice or left out. It is disposable: without its file, or with a file of
another version or a broken one, it begins anew and reads back `window` seconds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import names, tally
from amqpjobs.streams.follow import Message

VERSION = 1
"""Of the fold and the tables: another one rebuilds the file."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE minutes (
  minute INTEGER, cls TEXT, queue TEXT, count INTEGER, failed INTEGER, timed INTEGER, run_us INTEGER,
  run_max_us INTEGER, waited INTEGER, wait_us INTEGER, wait_max_us INTEGER, PRIMARY KEY (minute, cls, queue)
) WITHOUT ROWID;
CREATE TABLE days (day INTEGER PRIMARY KEY, count INTEGER NOT NULL, failed INTEGER NOT NULL);
CREATE TABLE waits (queue TEXT PRIMARY KEY, at REAL NOT NULL, wait_us INTEGER NOT NULL) WITHOUT ROWID;
"""

_ADD_MINUTE = """
INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, failed = failed + excluded.failed,
  timed = timed + excluded.timed, run_us = run_us + excluded.run_us, run_max_us = max(run_max_us, excluded.run_max_us),
  waited = waited + excluded.waited, wait_us = wait_us + excluded.wait_us,
  wait_max_us = max(wait_max_us, excluded.wait_max_us)
"""
_ADD_DAY = """
INSERT INTO days VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, failed = failed + excluded.failed
"""
_NEWEST_WAIT = """
INSERT INTO waits VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET at = excluded.at, wait_us = excluded.wait_us
WHERE (excluded.at, excluded.wait_us) > (at, wait_us)
"""


class Counted(NamedTuple):
    """Runs finished, and how many of them failed."""

    ran: int
    failed: int


class QueueRuns(NamedTuple):
    """What ran from one queue over some time; the mean run in seconds, None when no duration was told."""

    ran: int
    failed: int
    mean_run: float | None


class LatestWait(NamedTuple):
    """When the latest job of a queue ran and how long it had waited there, both in seconds."""

    at: float
    wait: float


class TallyStore:
    """A view of `job_metrics` for `streams.follow.Follower`, in `{folder}/job_metrics.db`.

    Used from one thread at a time. A new record begins `window` seconds before now.
    """

    def __init__(self, folder: Path, clock: Clock, window: float) -> None:
        self._path, self._clock, self._window = folder / f"{names.METRICS}.db", clock, window
        self._db = self._open()

    @property
    def began(self) -> float:
        """From when on (seconds since 1970) this record was told to read."""
        return float(self._meta("began"))

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()

    # --- the view that a Follower feeds -----------------------------------------------------------------------------

    def position(self) -> tuple[int, bytes] | None:
        """The last message folded: its offset and digest."""
        offset = self._meta("offset")
        return None if offset is None else (int(offset), bytes(self._meta("digest")))

    def fold(self, messages: Sequence[Message]) -> None:
        """Count these messages and move the position past them, in one transaction."""
        if not messages:
            return
        added = tally.tally((message.body for message in messages), _Seqs(self._db))
        last = messages[-1]
        with self._transaction():
            self._add(added)
            self._set({"offset": last.offset, "digest": last.digest})

    def expect(self, messages: int) -> None:
        """There is nothing here to put off."""

    def arrive(self) -> None:
        """Nor to make up for."""

    def renew(self) -> None:
        """The stream was made anew: what it held is no longer to be had, so the record begins again and says so."""
        with self._transaction():
            for table in ("meta", "seqs", "minutes", "days", "waits"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 (names from this line)
            now = self._clock.wall()
            self._set({"version": VERSION, "began": now - self._window, "renewed_at": now})

    def trimmed(self, first: int) -> None:
        """Messages up to `first` went before they were read: the counts are too low from here on, and say so."""
        with self._transaction():
            self._set({"gap_at": self._clock.wall(), "gap_before": first})

    # --- what the dashboard asks ------------------------------------------------------------------------------------

    def day(self, at: float) -> Counted:
        """What finished on the UTC day of the instant `at`."""
        row = self._db.execute("SELECT count, failed FROM days WHERE day = ?", (int(at // tally.DAY),)).fetchone()
        return Counted(*row) if row else Counted(0, 0)

    def total(self) -> Counted:
        """What finished since the record began."""
        row = self._db.execute("SELECT coalesce(sum(count), 0), coalesce(sum(failed), 0) FROM days").fetchone()
        return Counted(*row)

    def since(self) -> float:
        """The instant from which on `total` counts: where reading began, or the first metric when that is later."""
        earliest = self._meta("earliest")
        return self.began if earliest is None else max(self.began, float(earliest))

    def queues(self, since: float) -> dict[str, QueueRuns]:
        """What ran from each queue since the minute of the instant `since`."""
        rows = self._db.execute(
            "SELECT queue, sum(count), sum(failed), sum(timed), sum(run_us) FROM minutes WHERE minute >= ? GROUP BY 1",
            (int(since // tally.MINUTE),),
        )
        return {
            queue: QueueRuns(count, failed, run_us / timed / 1e6 if timed else None)
            for queue, count, failed, timed, run_us in rows
        }

    def waits(self) -> dict[str, LatestWait]:
        """The latest wait that each queue's jobs told."""
        rows = self._db.execute("SELECT queue, at, wait_us FROM waits")
        return {queue: LatestWait(at, wait_us / 1e6) for queue, at, wait_us in rows}

    def unreadable(self) -> int:
        """How many messages or entries were no metrics."""
        return int(self._meta("unreadable") or 0)

    def gap_at(self) -> float | None:
        """When it was seen that messages had gone before they were read; None when none did."""
        return self._instant("gap_at")

    def renewed_at(self) -> float | None:
        """When it was seen that the stream had been made anew; None when it never was."""
        return self._instant("renewed_at")

    def forget(self, before: float) -> None:
        """Drop the minutes before the instant `before`; the days stay."""
        with self._transaction():
            self._db.execute("DELETE FROM minutes WHERE minute < ?", (int(before // tally.MINUTE),))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        with contextlib.suppress(sqlite3.DatabaseError):
            db = _connect(self._path)
            if _version(db) == VERSION:
                return db
            db.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._db = _connect(self._path)
        self._db.executescript(_TABLES)
        with self._transaction():
            self._set({"version": VERSION, "began": self._clock.wall() - self._window})
        return self._db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _add(self, added: tally.Tally) -> None:
        self._db.executemany(_ADD_MINUTE, [(*key, *_columns(sums)) for key, sums in added.minutes.items()])
        self._db.executemany(_ADD_DAY, [(day, sums.count, sums.failed) for day, sums in added.days.items()])
        self._db.executemany(_NEWEST_WAIT, [(queue, *wait) for queue, wait in added.waits.items()])
        self._db.executemany("INSERT OR REPLACE INTO seqs VALUES (?, ?)", list(added.seqs.items()))
        if added.unreadable:
            self._set({"unreadable": self.unreadable() + added.unreadable})
        earliest = self._meta("earliest")
        if added.earliest is not None and (earliest is None or added.earliest < earliest):
            self._set({"earliest": added.earliest})

    def _meta(self, name: str) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set(self, values: Mapping[str, Any]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def _instant(self, name: str) -> float | None:
        value = self._meta(name)
        return None if value is None else float(value)


class _Seqs(Mapping[str, int]):
    """The last number of each source, asked one at a time: a long-lived stream has more sources than are wanted."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __getitem__(self, source: str) -> int:
        row = self._db.execute("SELECT seq FROM seqs WHERE source = ?", (source,)).fetchone()
        if row is None:
            raise KeyError(source)
        return int(row[0])

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._db.execute("SELECT source FROM seqs"))

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM seqs").fetchone()[0])


def _columns(sums: tally.Sums) -> tuple[int, ...]:
    return (
        sums.count, sums.failed, sums.timed, sums.run_us,
        sums.run_max_us, sums.waited, sums.wait_us, sums.wait_max_us,
    )  # fmt: skip


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    # Without an fsync each time: a power cut may take back the last transactions, position and sums alike.
    db.execute("PRAGMA synchronous = NORMAL")
    return db


def _version(db: sqlite3.Connection) -> int | None:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return None
    row = db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    return row[0] if row else None
