"""The dashboard's record of what ran: the tally of `job_metrics` in a SQLite file of its own.

The position in the stream and the sums that it stands for change in one transaction: after a crash the record goes
on exactly where it was, nothing counted twice or left out. It is disposable: without its file, or with a file of
another version or a broken one, it begins anew and reads back `window` seconds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import names, tally, text
from amqpjobs.model.tally import MOST_OUTCOMES, Outcome, Spread
from amqpjobs.streams.follow import Message

VERSION = 2
"""Of the fold and the tables: another one rebuilds the file."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE minutes (
  minute INTEGER, cls TEXT, queue TEXT, count INTEGER, failed INTEGER, timed INTEGER, run_us INTEGER,
  run_max_us INTEGER, waited INTEGER, wait_us INTEGER, wait_max_us INTEGER, PRIMARY KEY (minute, cls, queue)
) WITHOUT ROWID;
CREATE TABLE days (day INTEGER PRIMARY KEY, count INTEGER NOT NULL, failed INTEGER NOT NULL);
CREATE TABLE spreads (
  size INTEGER, start INTEGER, cls TEXT, count INTEGER, failed INTEGER, timed INTEGER, run_us INTEGER,
  run BLOB NOT NULL, wait BLOB NOT NULL, PRIMARY KEY (size, start, cls)
) WITHOUT ROWID;
CREATE TABLE versions (cls TEXT, version TEXT, at REAL NOT NULL, PRIMARY KEY (cls, version)) WITHOUT ROWID;
CREATE TABLE outcomes (
  row INTEGER PRIMARY KEY, at REAL, jid TEXT, cls TEXT, queue TEXT, status TEXT, run_us INTEGER, wait_us INTEGER,
  attempt INTEGER, worker TEXT, error_class TEXT, version TEXT
);
CREATE INDEX outcomes_jid ON outcomes (jid);
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
_FIRST_SEEN = """
INSERT INTO versions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET at = min(at, excluded.at)
"""
_SPREAD = "SELECT count, failed, timed, run_us, run, wait FROM spreads WHERE (size, start, cls) = (?, ?, ?)"
FINE = 6 * 3600.0
"""Seconds for which spreads are kept by the minute."""
MOST_VERSIONS = 200
_CLOCKS_DIFFER = 5.0
"""Seconds by which the clocks of who enqueues and who runs may differ."""
_ADD_OUTCOME = f"""
INSERT INTO outcomes ({", ".join(Outcome._fields)}) VALUES ({", ".join("?" * len(Outcome._fields))})
"""  # noqa: S608 (constants only)
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
            for table in ("meta", "seqs", "minutes", "days", "waits", "spreads", "versions", "outcomes"):
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

    def days(self, at: float, count: int) -> dict[int, Counted]:
        """What finished on each of the `count` UTC days up to the one of the instant `at`, by the day's start in
        seconds since 1970; days on which nothing did are left out."""
        last = int(at // tally.DAY)
        asked = "SELECT day, count, failed FROM days WHERE day > ? AND day <= ? ORDER BY day"
        return {
            day * tally.DAY: Counted(ran, failed) for day, ran, failed in self._db.execute(asked, (last - count, last))
        }

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

    def spreads(self, size: int, since: float, cls: str | None = None) -> Iterator[tuple[int, str, Spread]]:
        """Slots of `size` seconds that end after the instant `since`, of all classes or one, by start: start, class."""
        one = "" if cls is None else "AND cls = ? "
        rows = self._db.execute(
            "SELECT start, cls, count, failed, timed, run_us, run, wait FROM spreads "  # noqa: S608 (constants only)
            f"WHERE size = ? AND start > ? {one}ORDER BY start",
            (size, since - size, *(() if cls is None else (cls,))),
        )
        for start, name, *fields in rows:
            yield start, name, _spread(fields)

    def versions(self, cls: str, since: float) -> list[tuple[float, str]]:
        """The versions of a class that were first seen after the instant `since`, in order of time."""
        asked = "SELECT at, version FROM versions WHERE cls = ? AND at >= ? ORDER BY at DESC LIMIT ?"
        return sorted(self._db.execute(asked, (cls, since, MOST_VERSIONS)).fetchall())

    def outcomes(self, jid: str, limit: int) -> list[Outcome]:
        """The last runs of a job among those that are remembered, in the order of the stream."""
        asked = f"SELECT {', '.join(Outcome._fields)} FROM outcomes WHERE jid = ? ORDER BY row DESC LIMIT ?"  # noqa: S608
        return [Outcome(*row) for row in self._db.execute(asked, (jid, limit))][::-1]

    def begun(self, jobs: Iterable[tuple[str, float]]) -> set[str]:
        """Which of these jobs, by jid and when each was enqueued (seconds since 1970), have run since then; and those
        that were enqueued before the runs that are remembered, of which nobody can tell."""
        oldest = self._db.execute("SELECT row, at FROM outcomes ORDER BY row LIMIT 1").fetchone()
        horizon = self.began if oldest is None or oldest[0] == 1 else oldest[1]
        asked = "SELECT 1 FROM outcomes WHERE jid = ? AND at >= ? LIMIT 1"
        return {
            jid for jid, at in jobs if at < horizon or self._db.execute(asked, (jid, at - _CLOCKS_DIFFER)).fetchone()
        }

    def classes(self, queue: str, since: float) -> list[tuple[str, int, int]]:
        """The classes that ran from a queue since the minute of the instant `since`: name, runs, failed runs."""
        which = "WHERE queue = ? AND minute >= ? GROUP BY 1 ORDER BY 2 DESC"
        asked = f"SELECT cls, sum(count), sum(failed) FROM minutes {which}"  # noqa: S608 (constants only)
        return self._db.execute(asked, (queue, int(since // tally.MINUTE))).fetchall()

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
        """Drop the minutes before the instant `before`, and spreads by the minute sooner; the days stay."""
        now = self._clock.wall()
        with self._transaction():
            self._db.execute("DELETE FROM minutes WHERE minute < ?", (int(before // tally.MINUTE),))
            for size, until in ((tally.MINUTE, now - FINE - tally.HOUR), (tally.HOUR, before)):
                self._db.execute("DELETE FROM spreads WHERE size = ? AND start < ?", (size, until - size))
            self._db.execute("DELETE FROM versions WHERE at < ?", (now - 400 * tally.DAY,))

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
        self._db.executemany(_ADD_OUTCOME, added.outcomes[-MOST_OUTCOMES:])
        self._db.execute("DELETE FROM outcomes WHERE row <= (SELECT max(row) FROM outcomes) - ?", (MOST_OUTCOMES,))
        self._add_spreads(tally.hourly(added.spreads) | added.spreads)
        self._db.executemany(_FIRST_SEEN, [(*version, at) for version, at in added.versions.items()])
        self._db.executemany("INSERT OR REPLACE INTO seqs VALUES (?, ?)", list(added.seqs.items()))
        if added.unreadable:
            self._set({"unreadable": self.unreadable() + added.unreadable})
        earliest = self._meta("earliest")
        if added.earliest is not None and (earliest is None or added.earliest < earliest):
            self._set({"earliest": added.earliest})

    def _add_spreads(self, spreads: Mapping[tally.Slot, Spread]) -> None:
        for slot, added in spreads.items():
            row = self._db.execute(_SPREAD, slot).fetchone()
            if row is not None:
                added.add(_spread(row))
            packed = (text.dump(list(each.items())) for each in (added.run, added.wait))
            values = (*slot, added.count, added.failed, added.timed, added.run_us, *packed)
            self._db.execute("INSERT OR REPLACE INTO spreads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

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


def _spread(row: Sequence[Any]) -> Spread:
    count, failed, timed, run_us, run, wait = row
    return Spread(count, failed, timed, run_us, dict(text.parse(run)), dict(text.parse(wait)))


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
