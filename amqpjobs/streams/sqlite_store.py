"""A fold's state in SQLite: the store of `model.delayed` on disk, and what lists and the leader ask of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from amqpjobs.model.pending import Claim, Facts, Pending, Trim
from amqpjobs.model.words import Verdict
from amqpjobs.streams.entry_table import SELECT, id_of, pending_of
from amqpjobs.streams.kept_tables import KeptTables

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticks (name TEXT PRIMARY KEY, t INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (uuid TEXT PRIMARY KEY, verdicts TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS verdicts_at ON verdicts (at);
"""

BATCH_BYTES = 64 * 1024 * 1024
"""What the leader takes at once holds no more bodies than this, and at least one: a single one may have 16 MiB."""

SOURCES = 10_000
"""How many appenders' last numbers are kept in memory."""

FIRST = -(2**63)
"""Less than the number of any entry."""


class SqliteStore(KeptTables):
    """`model.pending.Store` on a connection; the caller opens and commits the transactions, and flushes before."""

    def __init__(self, db: sqlite3.Connection, indexes: Mapping[str, str] = MappingProxyType({})) -> None:
        db.executescript(SCHEMA)
        self._facts: Facts | None = None
        self._seqs: dict[str, tuple[int, int]] = {}
        self._new_seqs: set[str] = set()
        super().__init__(db, indexes)

    def meta(self, name: str) -> Any:
        """One remembered value, or None."""
        row = self.db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else row[0]

    def keep_meta(self, name: str, value: Any) -> None:
        """Remember one value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        super().rolled_back()
        self._facts = None
        self._seqs, self._new_seqs = {}, set()

    def flush(self) -> None:
        """Write what is kept in memory."""
        super().flush()
        if self._new_seqs:
            changed = [(source, *self._seqs[source]) for source in self._new_seqs]
            self.db.executemany("INSERT OR REPLACE INTO seqs VALUES (?, ?, ?)", changed)
            self._new_seqs.clear()
            if len(self._seqs) > SOURCES:
                self._seqs.clear()

    def facts(self) -> Facts:
        """Epoch, term and the log's time."""
        if self._facts is None:
            kept = self.meta("facts")
            facts = Facts(*json.loads(kept)) if kept else Facts()
            self._facts = facts._replace(
                term=None if facts.term is None else Claim(*facts.term),
                trimmed=None if facts.trimmed is None else Trim(*facts.trimmed),
            )
        return self._facts

    def keep_facts(self, facts: Facts) -> None:
        """Replace them."""
        self.keep_meta("facts", json.dumps(facts))
        self._facts = facts

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        if source not in self._seqs:
            row = self.db.execute("SELECT seq, offset FROM seqs WHERE source=?", (source,)).fetchone()
            if row is None:
                return 0
            self._seqs[source] = row
        return self._seqs[source][0]

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self._seqs[source] = seq, offset
        self._new_seqs.add(source)

    def seen(self, id_: str) -> bool:
        """Whether an earlier incarnation's entry was appended again already."""
        return self.db.execute("SELECT 1 FROM seen WHERE id=?", (id_,)).fetchone() is not None

    def keep_seen(self, id_: str) -> None:
        """Remember that it was."""
        self.db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_,))

    def last_tick(self, name: str) -> int | None:
        """The last tick of a recurring job, in seconds since 1970; None before the first."""
        row = self.db.execute("SELECT t FROM ticks WHERE name=?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def keep_tick(self, name: str, t: int) -> None:
        """Remember it."""
        self.db.execute("INSERT OR REPLACE INTO ticks VALUES (?, ?)", (name, t))

    def ticks(self) -> dict[str, int]:
        """The last tick of each recurring job that ever had one, by name."""
        return dict(self.db.execute("SELECT name, t FROM ticks").fetchall())

    def verdicts(self, uuid: str) -> list[Verdict] | None:
        """What was said of a command."""
        row = self.db.execute("SELECT verdicts FROM verdicts WHERE uuid=?", (uuid,)).fetchone()
        return None if row is None else [Verdict(item) for item in json.loads(row[0])]

    def keep_verdicts(self, uuid: str, verdicts: list[Verdict], at: float) -> None:
        """Remember it."""
        self.db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (uuid, json.dumps(verdicts), at))

    def forget_verdicts(self, before: float) -> None:
        """Drop verdicts of commands whose `at` is earlier."""
        self.db.execute("DELETE FROM verdicts WHERE at<?", (before,))

    def judged(self, limit: int) -> list[tuple[str, float]]:
        """The commands whose verdicts are kept, the latest first."""
        return list(self.db.execute("SELECT uuid, at FROM verdicts ORDER BY at DESC, uuid LIMIT ?", (limit,)))

    # What the leader asks.

    def due(self, now: float, limit: int) -> list[str]:
        """What is unclaimed and due at `now`, by identity, oldest due first; fewer when they are large."""
        self.flush()
        rows = self.db.execute(
            "SELECT number, odd_id, length(raw) FROM entries "
            "WHERE claim_n IS NULL AND due<=? ORDER BY due, pos_offset, pos_index LIMIT ?",
            (now, limit),
        )
        return [id_of(number, odd) for number, odd, _ in _bounded(rows)]

    def next_due(self) -> float | None:
        """When the next unclaimed entry is due; None when none waits for a time."""
        self.flush()
        row = self.db.execute(
            "SELECT due FROM entries WHERE claim_n IS NULL AND due IS NOT NULL ORDER BY due LIMIT 1"
        ).fetchone()
        return None if row is None else float(row[0])

    def claimed(self, limit: int) -> list[Pending]:
        """What is claimed and not settled, by any term, oldest due first; fewer when they are large."""
        self.flush()
        order = "ORDER BY due, pos_offset, pos_index LIMIT ?"
        rows = self.db.execute(SELECT + "WHERE claim_n IS NOT NULL " + order, (limit,))
        return [pending_of(row) for row in _bounded(rows)]

    def all_after(self, number: int, limit: int) -> list[tuple[int, Pending]]:
        """All entries in order of insertion, by pages: those whose number is greater."""
        self.flush()
        rows = self.db.execute(SELECT + "WHERE number>? ORDER BY number LIMIT ?", (number, limit))
        return [(row[0], pending_of(row)) for row in rows]


def _bounded(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The first rows, as far as their bodies together are not too much for memory: the last column, or its length."""
    size = 0
    for number, row in enumerate(rows):
        size += row[-1] if isinstance(row[-1], int) else len(row[-1])
        if number and size > BATCH_BYTES:
            return
        yield row
