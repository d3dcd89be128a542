"""A fold's state in SQLite: the store of `model.delayed` on disk, and what lists and the leader ask of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from amqpjobs.model.pending import Claim, Facts, Pending, Summary
from amqpjobs.model.protocol import Position, Verdict

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (uuid TEXT PRIMARY KEY, verdicts TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS verdicts_at ON verdicts (at);
CREATE TABLE IF NOT EXISTS entries (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
  pos_offset INTEGER NOT NULL, pos_index INTEGER NOT NULL, rev_offset INTEGER NOT NULL, rev_index INTEGER NOT NULL,
  jid TEXT NOT NULL, due REAL, bury INTEGER NOT NULL, fault TEXT, claim_n INTEGER, claim_source TEXT, key BLOB NOT NULL,
  cls TEXT NOT NULL, queue TEXT NOT NULL, retry_count INTEGER NOT NULL,
  error_class TEXT NOT NULL, error_message TEXT NOT NULL, at REAL, tags TEXT NOT NULL, raw BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_jid ON entries (jid);
CREATE INDEX IF NOT EXISTS entries_free ON entries (due, pos_offset, pos_index) WHERE claim_n IS NULL;
CREATE INDEX IF NOT EXISTS entries_due ON entries (due, number);
CREATE INDEX IF NOT EXISTS entries_at ON entries (at, number);
CREATE INDEX IF NOT EXISTS entries_claimed ON entries (claim_n) WHERE claim_n IS NOT NULL;
"""

_COLUMNS = (
    "id, pos_offset, pos_index, rev_offset, rev_index, jid, due, bury, fault, claim_n, claim_source, key, "
    "cls, queue, retry_count, error_class, error_message, at, tags, raw"
)
_INSERT = f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES ({','.join('?' * 20)})"  # noqa: S608 (constants only)
_SELECT = f"SELECT {_COLUMNS} FROM entries "  # noqa: S608 (constants only)
_CHANGE = """UPDATE entries SET pos_offset=?, pos_index=?, rev_offset=?, rev_index=?, due=?, bury=?, fault=?,
 claim_n=?, claim_source=? WHERE id=?"""
_ORDERS = {
    "due": "due, number",
    "-due": "due DESC, number DESC",
    "at": "at, number",
    "-at": "at DESC, number DESC",
}

BATCH_BYTES = 64 * 1024 * 1024
"""What the leader takes at once holds no more bodies than this, and at least one: a single one may have 16 MiB."""

SORTS = tuple(_ORDERS)
"""How a page may be sorted."""


class Row(NamedTuple):
    """One line of a list."""

    entry: str
    jid: str
    due: float | None
    cls: str
    queue: str
    retry_count: int
    error_class: str
    error_message: str
    at: float | None
    tags: list[str]
    claimed: bool
    raw: bytes


class SqliteStore:
    """`model.pending.Store` on a connection; the caller opens and commits the transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        db.executescript(SCHEMA)
        self._facts: Facts | None = None

    def meta(self, name: str) -> Any:
        """One remembered value, or None."""
        row = self.db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else row[0]

    def keep_meta(self, name: str, value: Any) -> None:
        """Remember one value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        self._facts = None

    def facts(self) -> Facts:
        """Epoch, term and the log's time."""
        if self._facts is None:
            kept = self.meta("facts")
            facts = Facts(*json.loads(kept)) if kept else Facts()
            self._facts = facts._replace(term=None if facts.term is None else Claim(*facts.term))
        return self._facts

    def keep_facts(self, facts: Facts) -> None:
        """Replace them."""
        self.keep_meta("facts", json.dumps(facts))
        self._facts = facts

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        row = self.db.execute("SELECT seq FROM seqs WHERE source=?", (source,)).fetchone()
        return 0 if row is None else int(row[0])

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self.db.execute("INSERT OR REPLACE INTO seqs VALUES (?, ?, ?)", (source, seq, offset))

    def get(self, id_: str) -> Pending | None:
        """The pending entry of that identity."""
        row = self.db.execute(_SELECT + "WHERE id=?", (id_,)).fetchone()
        return None if row is None else _pending(row)

    def put(self, entry: Pending) -> None:
        """Insert or replace by identity."""
        summary = entry.summary
        self.db.execute(
            _INSERT,
            (
                entry.id, *entry.pos, *entry.rev, entry.jid, entry.due, entry.bury, _fault(entry), *_claim(entry),
                entry.key, summary.cls, summary.queue, summary.retry_count, summary.error_class,
                summary.error_message, summary.at, json.dumps(summary.tags), entry.raw,
            ),
        )  # fmt: skip

    def change(self, entry: Pending) -> None:
        """Update what may change of an entry that is there, and leave its body alone."""
        fields = (*entry.pos, *entry.rev, entry.due, entry.bury, _fault(entry), *_claim(entry), entry.id)
        self.db.execute(_CHANGE, fields)

    def remove(self, id_: str) -> None:
        """Forget it."""
        self.db.execute("DELETE FROM entries WHERE id=?", (id_,))

    def of_jid(self, jid: str) -> list[Pending]:
        """All pending entries of a jid, oldest position first."""
        rows = self.db.execute(_SELECT + "WHERE jid=? ORDER BY pos_offset, pos_index", (jid,))
        return [_pending(row) for row in rows]

    def seen(self, id_: str) -> bool:
        """Whether an earlier incarnation's entry was appended again already."""
        return self.db.execute("SELECT 1 FROM seen WHERE id=?", (id_,)).fetchone() is not None

    def keep_seen(self, id_: str) -> None:
        """Remember that it was."""
        self.db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_,))

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

    # What the leader asks.

    def due(self, now: float, limit: int) -> list[Pending]:
        """What is unclaimed and due at `now`, oldest due first; fewer when they are large."""
        rows = self.db.execute(
            _SELECT + "WHERE claim_n IS NULL AND due<=? ORDER BY due, pos_offset, pos_index LIMIT ?", (now, limit)
        )
        return _bounded(rows)

    def next_due(self) -> float | None:
        """When the next unclaimed entry is due; None when none waits for a time."""
        row = self.db.execute(
            "SELECT due FROM entries WHERE claim_n IS NULL AND due IS NOT NULL ORDER BY due LIMIT 1"
        ).fetchone()
        return None if row is None else float(row[0])

    def claimed(self, limit: int, n: int | None = None) -> list[Pending]:
        """What is claimed and not settled, by any term or by term `n`, oldest due first; fewer when they are large."""
        only, fields = ("AND claim_n=? ", (n, limit)) if n is not None else ("", (limit,))
        order = "ORDER BY due, pos_offset, pos_index LIMIT ?"
        return _bounded(self.db.execute(_SELECT + "WHERE claim_n IS NOT NULL " + only + order, fields))

    def beyond(self, horizon: float, limit: int) -> list[Pending]:
        """What is unclaimed and due later than `horizon`."""
        rows = self.db.execute(_SELECT + "WHERE claim_n IS NULL AND due>? ORDER BY due LIMIT ?", (horizon, limit))
        return [_pending(row) for row in rows]

    def all_after(self, number: int, limit: int) -> list[tuple[int, Pending]]:
        """All entries in order of insertion, by pages: those whose number is greater."""
        rows = self.db.execute(
            f"SELECT number, {_COLUMNS} FROM entries WHERE number>? ORDER BY number LIMIT ?",  # noqa: S608
            (number, limit),
        )
        return [(row[0], _pending(row[1:])) for row in rows]

    # What lists ask.

    def count(self) -> int:
        """How many are pending."""
        return int(self.db.execute("SELECT count(*) FROM entries").fetchone()[0])

    def page(self, limit: int, offset: int, sort: str) -> list[Row]:
        """One page of a list; `sort` is one of SORTS (ValueError else)."""
        if sort not in _ORDERS:
            raise ValueError(f"sort must be one of {', '.join(SORTS)}, not {sort!r}")
        rows = self.db.execute(_SELECT + f"ORDER BY {_ORDERS[sort]} LIMIT ? OFFSET ?", (limit, offset))
        return [_row(_pending(row)) for row in rows]


def _bounded(rows: Iterable[tuple[Any, ...]]) -> list[Pending]:
    """The first rows, as far as their bodies together are not too much for memory."""
    found: list[Pending] = []
    size = 0
    for row in rows:
        entry = _pending(row)
        size += len(entry.raw)
        if found and size > BATCH_BYTES:
            break
        found.append(entry)
    return found


def _fault(entry: Pending) -> str | None:
    return None if entry.fault is None else json.dumps(entry.fault)


def _claim(entry: Pending) -> tuple[int | None, str | None]:
    return (None, None) if entry.claim is None else (entry.claim.n, entry.claim.source)


def _pending(row: tuple[Any, ...]) -> Pending:
    id_, po, pi, ro, ri, jid, due, bury, fault, n, source, key, cls, queue, count, ec, em, at, tags, raw = row
    return Pending(
        id=id_,
        pos=Position(po, pi),
        rev=Position(ro, ri),
        jid=jid,
        due=due,
        raw=raw,
        summary=Summary(cls, queue, count, ec, em, at, tuple(json.loads(tags))),
        key=key,
        bury=bool(bury),
        fault=None if fault is None else tuple(json.loads(fault)),
        claim=None if n is None else Claim(n, source),
    )


def row_of(entry: Pending) -> Row:
    """An entry as a line of a list."""
    s = entry.summary
    return Row(
        entry.id, entry.jid, entry.due, s.cls, s.queue, s.retry_count, s.error_class, s.error_message, s.at,
        list(s.tags), entry.claim is not None, entry.raw,
    )  # fmt: skip


_row = row_of
