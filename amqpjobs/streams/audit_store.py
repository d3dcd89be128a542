"""The view of `audit`: the newest actions, for people. It is a memory aid and no fold that anything is decided by, so
it may forget by count; what it forgets stays in the stream for years."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.model import names
from amqpjobs.model.audit import Judged, Ordered, Touched, read_audit
from amqpjobs.model.protocol import Position, Verdict
from amqpjobs.streams.follow import Message

log = logging.getLogger("amqpjobs.views")

VERSION = 1
MOST_ACTIONS = 10_000
MOST_JOBS = 1_000_000
"""Actions, and the jobs that they were about, that this view remembers."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS actions (
  number INTEGER PRIMARY KEY, action TEXT NOT NULL UNIQUE, op TEXT NOT NULL, place TEXT NOT NULL, by TEXT NOT NULL,
  via TEXT NOT NULL, at REAL NOT NULL, due REAL, wanted TEXT NOT NULL, jobs INTEGER NOT NULL, done INTEGER NOT NULL,
  not_found INTEGER NOT NULL, conflict INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS commands (
  command TEXT PRIMARY KEY, number INTEGER NOT NULL, epoch TEXT, judged INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS commands_number ON commands (number);
CREATE TABLE IF NOT EXISTS jobs (
  row INTEGER PRIMARY KEY, number INTEGER NOT NULL, command TEXT NOT NULL, item INTEGER NOT NULL, jid TEXT NOT NULL,
  entry TEXT, pos_offset INTEGER, pos_index INTEGER, due REAL, verdict TEXT
);
CREATE INDEX IF NOT EXISTS jobs_jid ON jobs (jid);
CREATE INDEX IF NOT EXISTS jobs_command ON jobs (command, item);
CREATE INDEX IF NOT EXISTS jobs_number ON jobs (number);
"""
_ACTIONS = "SELECT action, op, place, by, via, at, due, wanted, jobs, done, not_found, conflict FROM actions "
_DELETED = """SELECT j.row, j.jid, j.entry, j.pos_offset, j.pos_index, j.due, j.command, a.place, c.epoch
 FROM jobs j JOIN actions a USING (number) JOIN commands c ON c.command = j.command
 WHERE a.op = 'delete' AND j.verdict = 'done' AND j.entry IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM jobs r JOIN actions b USING (number) WHERE r.jid = j.jid AND r.entry = j.entry
 AND r.row > j.row AND b.op = 'restore' AND b.place = a.place AND r.verdict = 'done') """


class Action(NamedTuple):
    """One line of the list. `jobs` were asked for; of `unknown` of them no verdict is on record."""

    action: str
    op: str
    place: str
    by: str
    via: str
    at: float
    due: float | None
    where: str
    jobs: int
    done: int
    not_found: int
    conflict: int

    @property
    def unknown(self) -> int:
        """Jobs without a verdict."""
        return self.jobs - self.done - self.not_found - self.conflict


class Touch(NamedTuple):
    """One order for one job; `verdict` None: not known, or an order that has none."""

    at: float
    op: str
    place: str
    by: str
    via: str
    verdict: str | None


class Deletion(NamedTuple):
    """An entry that was deleted: by which command, from which stream of which epoch."""

    row: int
    job: Touched
    command: str
    stream: str
    epoch: str | None


class AuditStore:
    """A view of `audit` for `streams.follow.Follower`, in `{folder}/audit.db`; used from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{names.AUDIT}.db"
        self._db = self._open()

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()

    # The follower's side.

    def position(self) -> tuple[int, bytes] | None:
        """The last message folded: its offset and digest."""
        row = self._db.execute("SELECT value FROM meta WHERE name='position'").fetchone()
        if row is None or row[0] is None:
            return None
        offset, _, digest = row[0].partition(" ")
        return int(offset), bytes.fromhex(digest)

    def fold(self, messages: Sequence[Message]) -> None:
        """Take in messages and move the position past them, in one transaction."""
        if not messages:
            return
        with self._db:
            self._db.execute("BEGIN")
            for message in messages:
                for entry in read_audit(message.body):
                    if isinstance(entry, Ordered):
                        self._order(entry)
                    else:
                        self._judge(entry)
            self._forget()
            last = messages[-1]
            self._keep("position", f"{last.offset} {last.digest.hex()}")

    def expect(self, messages: int) -> None:
        """There is nothing here to put off."""

    def arrive(self) -> None:
        """Nor to make up for."""

    def renew(self) -> None:
        """The stream was made anew: what was read of the old one stays true."""
        with self._db:
            self._keep("position", None)

    def trimmed(self, first: int) -> None:
        """Retention took what was not read; older than what people look for here."""
        log.warning("%s was trimmed up to offset %d before it was read", names.AUDIT, first)

    # What people ask.

    def page(self, limit: int, offset: int = 0) -> list[Action]:
        """The actions, newest first."""
        return [
            Action(*row)
            for row in self._db.execute(_ACTIONS + "ORDER BY number DESC LIMIT ? OFFSET ?", (limit, offset))
        ]

    def count(self) -> int:
        """How many actions are remembered."""
        return int(self._db.execute("SELECT count(*) FROM actions").fetchone()[0])

    def get(self, action: str) -> Action | None:
        """One action."""
        row = self._db.execute(_ACTIONS + "WHERE action=?", (action,)).fetchone()
        return None if row is None else Action(*row)

    def jobs(self, action: str, limit: int) -> list[tuple[str, str | None]]:
        """The first jobs of an action and their verdicts (None: not known)."""
        rows = self._db.execute(
            "SELECT jid, verdict FROM jobs JOIN actions USING (number) WHERE action=? ORDER BY row LIMIT ?",
            (action, limit),
        )
        return [(jid, verdict) for jid, verdict in rows]

    def touching(self, jid: str, limit: int) -> list[Touch]:
        """What was ordered for one job, the last of it in order of time, and what became of it."""
        asked = (
            "SELECT at, op, place, by, via, verdict FROM jobs JOIN actions USING (number) WHERE jid=?"
            " ORDER BY row DESC LIMIT ?"
        )
        return [Touch(*row) for row in self._db.execute(asked, (jid, limit))][::-1]

    def deletion(self, jid: str, entry: str | None = None, stream: str | None = None) -> Deletion | None:
        """The last deletion of a job that was done and not undone."""
        only = [("j.jid", jid), ("j.entry", entry), ("a.place", stream)]
        clauses = "".join(f"AND {name}=? " for name, value in only if value is not None)
        values = [value for _, value in only if value is not None]
        found = self._deletions(self._db.execute(_DELETED + clauses + "ORDER BY j.row DESC LIMIT 1", values))
        return found[0] if found else None

    def deletions(self, action: str, after: int, limit: int) -> list[Deletion]:
        """What an action deleted, in pages: rows above `after`."""
        where = "AND a.action=? AND j.row>? ORDER BY j.row LIMIT ?"
        return self._deletions(self._db.execute(_DELETED + where, (action, after, limit)))

    def judged(self, command: str) -> bool:
        """Whether the verdicts of a command are on record."""
        row = self._db.execute("SELECT judged FROM commands WHERE command=?", (command,)).fetchone()
        return row is not None and bool(row[0])

    # Folding.

    def _order(self, ordered: Ordered) -> None:
        if self._db.execute("SELECT 1 FROM commands WHERE command=?", (ordered.command,)).fetchone():
            return  # an append that was repeated
        row = self._db.execute("SELECT number FROM actions WHERE action=?", (ordered.action,)).fetchone()
        number = row[0] if row is not None else self._begin(ordered)
        self._db.execute("INSERT INTO commands VALUES (?, ?, ?, 0)", (ordered.command, number, ordered.epoch))
        self._db.execute("UPDATE actions SET jobs = jobs + ? WHERE number=?", (len(ordered.jobs), number))
        self._db.executemany(
            "INSERT INTO jobs (number, command, item, jid, entry, pos_offset, pos_index, due)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, ordered.command, item, job.jid, job.entry, *(job.pos or (None, None)), job.due)
                for item, job in enumerate(ordered.jobs)
            ],
        )

    def _begin(self, ordered: Ordered) -> int:
        wanted = " ".join(f"{name}={value}" for name, value in ordered.where)
        found = self._db.execute(
            "INSERT INTO actions (action, op, place, by, via, at, due, wanted, jobs, done, not_found, conflict)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0)",
            (ordered.action, ordered.op, ordered.place, ordered.by, ordered.via, ordered.at, ordered.due, wanted),
        )
        assert found.lastrowid is not None, "a row was inserted"
        return found.lastrowid

    def _judge(self, judged: Judged) -> None:
        row = self._db.execute("SELECT number, judged FROM commands WHERE command=?", (judged.command,)).fetchone()
        if row is None or row[1]:
            return
        self._db.execute("UPDATE commands SET judged=1 WHERE command=?", (judged.command,))
        self._db.executemany(
            "UPDATE jobs SET verdict=? WHERE command=? AND item=?",
            [(verdict, judged.command, item) for item, verdict in enumerate(judged.verdicts)],
        )
        counts = [sum(each is verdict for each in judged.verdicts) for verdict in Verdict]
        self._db.execute(
            "UPDATE actions SET done=done+?, not_found=not_found+?, conflict=conflict+? WHERE number=?",
            (*counts, row[0]),
        )

    def _forget(self) -> None:
        self._db.execute("DELETE FROM jobs WHERE row <= (SELECT max(row) FROM jobs) - ?", (MOST_JOBS,))
        oldest = self._db.execute("SELECT max(number) FROM actions").fetchone()[0]
        if oldest is not None and oldest > MOST_ACTIONS:
            for table in ("jobs", "commands", "actions"):
                self._db.execute(f"DELETE FROM {table} WHERE number <= ?", (oldest - MOST_ACTIONS,))  # noqa: S608

    @staticmethod
    def _deletions(rows: Iterable[tuple[Any, ...]]) -> list[Deletion]:
        return [
            Deletion(row, Touched(jid, entry, None if po is None else Position(po, pi), due), command, stream, epoch)
            for row, jid, entry, po, pi, due, command, stream, epoch in rows
        ]

    # The file.

    def _keep(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _open(self) -> sqlite3.Connection:
        for attempt in (1, 2):
            self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.executescript(_TABLES)
                row = self._db.execute("SELECT value FROM meta WHERE name='version'").fetchone()
                if row is None or row[0] == VERSION:
                    self._keep("version", VERSION)
                    return self._db
            except sqlite3.DatabaseError as error:
                if attempt == 2:
                    raise
                log.warning("the view of %s cannot be read (%s): it rebuilds", names.AUDIT, error)
            self._db.close()
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        raise AssertionError("a new file has this version")
