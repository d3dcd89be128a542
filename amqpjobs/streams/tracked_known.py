"""What the fold of `job_events` knows beside the jobs: the stream itself, its appenders, verdicts, and queues."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

import orjson

from amqpjobs.model import command_names
from amqpjobs.model.pending import Claim
from amqpjobs.model.tracked import Policy, Stand, Verdict, Word
from amqpjobs.streams.tracked_rows import policy_from, sparse

SOURCES = 10_000
"""How many appenders' last numbers are kept in memory."""

CARRIED = 5000
"""Appenders' numbers and verdicts that pages carry: those of the last seconds, in which a repeat may still come."""

ROWS = 100
"""Rows of one statement, at most."""

WORDS = list(Word)
_WORDS = {word: code for code, word in enumerate(WORDS)}

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (uuid TEXT PRIMARY KEY, word INTEGER NOT NULL, job INTEGER, at INTEGER NOT NULL)
 WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, policy TEXT NOT NULL) WITHOUT ROWID;
"""


class KnownTables:
    """A part of `model.tracked.Store`; rows of many are written at once, by `flush`, before the transaction ends."""

    def __init__(self, db: sqlite3.Connection) -> None:
        db.executescript(SCHEMA)
        self.db = db
        self.rolled_back()

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        self._stand: Stand | None = None
        self._seqs: dict[str, int] = {}
        self._new_seqs: dict[str, int] = {}
        self._verdicts: dict[str, tuple[Verdict, float]] = {}
        self._newest: str | None = None
        self._queues: dict[str, Policy | None] = {}

    def flush(self) -> None:
        """Write what is kept in memory. Where the disk does not take it, all since the last commit is undone."""
        try:
            self._write()
        except sqlite3.Error:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            self.rolled_back()
            raise

    def _write(self) -> None:
        if self._verdicts:
            rows = [(uuid, _WORDS[v.word], v.job, int(at)) for uuid, (v, at) in self._verdicts.items()]
            put_many(self.db, "verdicts", rows)
            self._verdicts.clear()
            if self._newest is not None:
                self.keep_meta("newest", self._newest)
        put_many(self.db, "seqs", [(source, self._seqs[source], at) for source, at in self._new_seqs.items()])
        self._new_seqs.clear()
        if len(self._seqs) > SOURCES:
            self._seqs.clear()

    def meta(self, name: str) -> Any:
        """One remembered value, or None."""
        row = self.db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else row[0]

    def keep_meta(self, name: str, value: Any) -> None:
        """Remember one value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def stand(self) -> Stand:
        """Epoch, term and the log's time."""
        if self._stand is None:
            kept = self.meta("stand")
            stand = Stand(*json.loads(kept)) if kept else Stand()
            self._stand = stand if stand.term is None else stand._replace(term=Claim(*stand.term))
        return self._stand

    def keep_stand(self, stand: Stand) -> None:
        """Replace them."""
        self.keep_meta("stand", json.dumps(stand))
        self._stand = stand

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        if source not in self._seqs:
            row = self.db.execute("SELECT seq FROM seqs WHERE source=?", (source,)).fetchone()
            self._seqs[source] = 0 if row is None else row[0]
        return self._seqs[source]

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self._seqs[source] = seq
        self._new_seqs[source] = offset

    def verdict(self, uuid: str) -> Verdict | None:
        """What was said of a command. No row is sought for one that was named after all that were judged."""
        if uuid in self._verdicts:
            return self._verdicts[uuid][0]
        if command_names.is_dated(uuid) and uuid > self._newest_judged():
            return None
        row = self.db.execute("SELECT word, job FROM verdicts WHERE uuid=?", (uuid,)).fetchone()
        return None if row is None else Verdict(WORDS[row[0]], row[1])

    def keep_verdict(self, uuid: str, verdict: Verdict, at: float) -> None:
        """Remember it."""
        self._verdicts[uuid] = verdict, at
        if command_names.is_dated(uuid) and uuid > self._newest_judged():
            self._newest = uuid

    def _newest_judged(self) -> str:
        if self._newest is None:
            self._newest = self.meta("newest") or ""
        return self._newest

    def forget_verdicts(self, before: float) -> None:
        """Drop those of commands whose `at` is earlier. It reads them all: the caller asks rarely."""
        self.flush()
        self.db.execute("DELETE FROM verdicts WHERE at<?", (before,))

    def queue(self, name: str) -> Policy | None:
        """The settings of a queue; None when there is none."""
        if name not in self._queues:
            row = self.db.execute("SELECT policy FROM queues WHERE name=?", (name,)).fetchone()
            self._queues[name] = None if row is None else policy_from(orjson.loads(row[0]))
        return self._queues[name]

    def keep_queue(self, name: str, policy: Policy) -> None:
        """Create or replace them."""
        self.db.execute("INSERT OR REPLACE INTO queues VALUES (?, ?)", (name, json.dumps(sparse(policy))))
        self._queues[name] = policy

    def drop_queue(self, name: str) -> None:
        """Forget them."""
        self.db.execute("DELETE FROM queues WHERE name=?", (name,))
        self._queues[name] = None

    def queues(self) -> list[str]:
        """All names, sorted."""
        return [row[0] for row in self.db.execute("SELECT name FROM queues ORDER BY name")]

    def known(self) -> tuple[list[tuple[str, int]], list[tuple[str, Verdict, float]]]:
        """The appenders that were heard of last, and the latest verdicts, as many as pages carry."""
        self.flush()
        sources = self.db.execute("SELECT source, seq FROM seqs ORDER BY offset DESC LIMIT ?", (CARRIED,)).fetchall()
        rows = self.db.execute("SELECT uuid, word, job, at FROM verdicts ORDER BY at DESC LIMIT ?", (CARRIED,))
        return sources, [(uuid, Verdict(WORDS[word], job), at) for uuid, word, job, at in rows]


def put_many(db: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]], also: str = "") -> None:
    """Insert rows or replace those with their keys (or, with `also`, what that says), many in one statement: a row by
    itself costs twice as much, most of it in handing the interpreter's lock back and forth."""
    if not rows:
        return
    verb, one = "INSERT" if also else "INSERT OR REPLACE", f"({','.join('?' * len(rows[0]))})"
    for first in range(0, len(rows), ROWS):
        some = rows[first : first + ROWS]
        values = ",".join([one] * len(some))
        db.execute(f"{verb} INTO {table} VALUES {values} {also}", [*chain.from_iterable(some)])
