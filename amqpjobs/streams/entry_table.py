"""The pending entries of a delayed set in SQLite, written in bulk.

What a fold puts stays in memory until the transaction's end (or until it is much) and goes to disk in statements of
many rows: a row by itself costs twice as much, most of it in handing the interpreter's lock back and forth. An entry
that comes and goes within one transaction never sees the disk.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amqpjobs.model import text
from amqpjobs.model.pending import Claim, Pending, Summary, due_at
from amqpjobs.model.protocol import Position

LAYOUT = 2
"""Of these tables: a file of another one is rebuilt."""

ITEM_BITS = 20
"""An entry's row number is the offset of its identity and, in so many low bits, the item: no index leads to a row."""
MOST_OFFSET = 2 ** (62 - ITEM_BITS)

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
  number INTEGER PRIMARY KEY, odd_id TEXT,
  pos_offset INTEGER NOT NULL, pos_index INTEGER NOT NULL, rev_offset INTEGER NOT NULL, rev_index INTEGER NOT NULL,
  jid TEXT NOT NULL, due REAL, bury INTEGER NOT NULL, fault TEXT, claim_n INTEGER, claim_source TEXT, key BLOB NOT NULL,
  cls TEXT NOT NULL, queue TEXT NOT NULL, retry_count INTEGER NOT NULL,
  error_class TEXT NOT NULL, error_message TEXT NOT NULL, at REAL, tags TEXT NOT NULL, raw BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS entries_odd ON entries (odd_id) WHERE odd_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS counts (
  cls TEXT NOT NULL, queue TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (cls, queue)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live (one INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
"""

OVERHEAD = 128
"""What an entry takes in the log beside its bytes, about."""

INDEXES = {
    "entries_pos": "entries (pos_offset, pos_index)",
    "entries_jid": "entries (jid)",
    "entries_free": "entries (due, pos_offset, pos_index) WHERE claim_n IS NULL",
    "entries_claimed": "entries (claim_n) WHERE claim_n IS NOT NULL",
}
"""What the tail needs, beside what lists need. A long log is loaded without them: one more row in the middle of each is
what loading costs."""

COLUMNS = (
    "number, odd_id, pos_offset, pos_index, rev_offset, rev_index, jid, due, bury, fault, claim_n, claim_source, key, "
    "cls, queue, retry_count, error_class, error_message, at, tags, raw"
)
SELECT = f"SELECT {COLUMNS} FROM entries "  # noqa: S608 (constants only)
_ROW = "(" + ",".join("?" * 21) + ")"
_ROWS = 100
_INSERT = f"INSERT INTO entries ({COLUMNS}) VALUES "  # noqa: S608 (constants only)
_CHANGE = """UPDATE entries SET pos_offset=?, pos_index=?, rev_offset=?, rev_index=?, due=?, bury=?, fault=?,
 claim_n=?, claim_source=? WHERE number=?"""
_COUNT = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"
_LIVE = "INSERT INTO live VALUES (1, ?) ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes"
_THESE = "number IN (SELECT value FROM json_each(?))"

BUFFERED = 5000
BUFFERED_BYTES = 32 * 1024 * 1024
"""How much is kept in memory before it goes to disk, whichever is reached first."""


class EntryTable:
    """The entries part of `model.pending.Store`; the caller opens and commits the transactions.

    Whatever reads the table by SQL calls `flush` first.
    """

    def __init__(self, db: sqlite3.Connection, indexes: Mapping[str, str]) -> None:
        self.db = db
        self._indexes = {**INDEXES, **indexes}
        db.executescript(SCHEMA)
        self.build_indexes()
        self._forget()

    def _forget(self) -> None:
        self._fresh: dict[str, tuple[int, Pending]] = {}
        self._fresh_jids: dict[str, list[str]] = {}
        self._fresh_bytes = 0
        self._tally: Counter[tuple[str, str]] = Counter()
        self._live = 0
        self._highest = _one(self.db, "SELECT max(number) FROM entries") or 0

    # Writing.

    def put(self, entry: Pending) -> None:
        """Insert or replace by identity."""
        number = number_of(entry.id)
        if number is None or number <= self._highest:
            self.remove(entry.id)
            number = self._odd_number() if number is None else number
        self._highest = max(self._highest, number)
        self._fresh[entry.id] = number, entry
        self._fresh_jids.setdefault(entry.jid, []).append(entry.id)
        self._fresh_bytes += len(entry.raw)
        self._live += len(entry.raw) + OVERHEAD
        self._tally[entry.summary.cls, entry.summary.queue] += 1
        if len(self._fresh) >= BUFFERED or self._fresh_bytes > BUFFERED_BYTES:
            self.flush()

    def change(self, entry: Pending) -> None:
        """Update what may change of an entry that is there, and leave its body alone."""
        if entry.id in self._fresh:
            self._fresh[entry.id] = self._fresh[entry.id][0], entry
            return
        fields = (*entry.pos, *entry.rev, entry.due, entry.bury, _fault(entry), *_claim(entry))
        self.db.execute(_CHANGE, (*fields, self._number(entry.id)))

    def claim(self, ids: Iterable[str], holder: Claim, until: float | None = None) -> None:
        """Claim those that are there, unclaimed, and due at `until`, unless that is None."""
        stored = []
        for id_ in ids:
            number, entry = self._fresh.get(id_, (0, None))
            if entry is None:
                stored.append(id_)
            elif entry.claim is None and due_at(entry, until):
                self._fresh[id_] = number, replace(entry, claim=holder)
        update = f"UPDATE entries SET claim_n=?, claim_source=? WHERE {_THESE} AND claim_n IS NULL"  # noqa: S608
        if until is None:
            self.db.execute(update, (*holder, self._numbers(stored)))
        else:
            self.db.execute(f"{update} AND due<=?", (*holder, self._numbers(stored), until))

    def end(self, ids: Iterable[str]) -> None:
        """Remove those that are claimed."""
        stored = []
        for id_ in ids:
            _, entry = self._fresh.get(id_, (0, None))
            if entry is None:
                stored.append(id_)
            elif entry.claim is not None:
                self._drop(id_)
        self._delete(f"{_THESE} AND claim_n IS NOT NULL", self._numbers(stored))

    def remove(self, id_: str) -> None:
        """Forget it."""
        if id_ in self._fresh:
            self._drop(id_)
        else:
            self._delete("number=?", self._number(id_))

    def flush(self) -> None:
        """Write what is kept in memory."""
        if self._fresh:
            rows = [_row(number, entry) for number, entry in self._fresh.values()]
            whole = len(rows) - len(rows) % _ROWS
            for at in range(0, whole, _ROWS):
                self.db.execute(_INSERT + ",".join([_ROW] * _ROWS), [x for row in rows[at : at + _ROWS] for x in row])
            self.db.executemany(_INSERT + _ROW, rows[whole:])
            self._fresh, self._fresh_jids, self._fresh_bytes = {}, {}, 0
        if self._tally:
            changed = [(*names, n) for names, n in self._tally.items() if n]
            self.db.executemany(_COUNT, changed)
            if any(n < 0 for *_, n in changed):
                self.db.execute("DELETE FROM counts WHERE n=0")
            self._tally.clear()
        if self._live:
            self.db.execute(
                "INSERT INTO live VALUES (1, ?) ON CONFLICT DO UPDATE SET bytes = bytes + ?", (self._live,) * 2
            )
            self._live = 0

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        self._forget()

    # Reading.

    def get(self, id_: str) -> Pending | None:
        """The pending entry of that identity."""
        if id_ in self._fresh:
            return self._fresh[id_][1]
        return next(self._select("WHERE number=?", self._number(id_)), None)

    def held(self, ids: Iterable[str], holder: Claim) -> list[Pending]:
        """Those of these that `holder` has claimed, oldest due first."""
        self.flush()
        rest = f"WHERE {_THESE} AND claim_n=? AND claim_source=? ORDER BY due, pos_offset, pos_index"
        return list(self._select(rest, self._numbers(ids), *holder))

    def of_jid(self, jid: str) -> list[Pending]:
        """All pending entries of a jid, oldest position first."""
        self._index("entries_jid")
        found = list(self._select("WHERE jid=?", jid))
        if jid in self._fresh_jids:
            fresh = [self._fresh[id_][1] for id_ in dict.fromkeys(self._fresh_jids[jid]) if id_ in self._fresh]
            found += [entry for entry in fresh if entry.jid == jid]
        return sorted(found, key=lambda entry: entry.pos)

    def count(self) -> int:
        """How many are pending."""
        self.flush()
        return int(_one(self.db, "SELECT sum(n) FROM counts") or 0)

    def live_bytes(self) -> int:
        """About how much of the log all that is pending takes, were it written once."""
        self.flush()
        return int(_one(self.db, "SELECT bytes FROM live") or 0)

    # Indexes.

    def drop_indexes(self, keep: Sequence[str] = ()) -> None:
        """Until `build_indexes`, put all the faster, and answer what the tail asks only slowly."""
        for name in set(self._indexes) - set(keep):
            self.db.execute(f"DROP INDEX IF EXISTS {name}")
        self._built &= set(keep)

    def build_indexes(self) -> None:
        """Have them all; quick when they are there."""
        self._built: set[str] = set()
        for name in self._indexes:
            self._index(name)

    def has_index(self, name: str) -> bool:
        """Whether it is there now."""
        return name in self._built

    def _index(self, name: str) -> None:
        if name not in self._built:
            self.db.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {self._indexes[name]}")
            self._built.add(name)

    # Inside.

    def _select(self, rest: str, *fields: Any) -> Iterator[Pending]:
        return (pending_of(row) for row in self.db.execute(SELECT + rest, fields))

    def _drop(self, id_: str) -> None:
        _, entry = self._fresh.pop(id_)
        self._fresh_bytes -= len(entry.raw)
        self._live -= len(entry.raw) + OVERHEAD
        self._tally[entry.summary.cls, entry.summary.queue] -= 1

    def _delete(self, where: str, *fields: Any) -> None:
        """Two statements: one that deletes and tells what it deleted takes half as long again."""
        rows = self.db.execute(f"SELECT cls, queue, length(raw) FROM entries WHERE {where}", fields).fetchall()  # noqa: S608
        self.db.execute(f"DELETE FROM entries WHERE {where}", fields)  # noqa: S608
        self._tally.subtract((cls, queue) for cls, queue, _ in rows)
        self._live -= sum(size + OVERHEAD for *_, size in rows)

    def _number(self, id_: str) -> int | None:
        """The row of a stored entry, if there is one."""
        number = number_of(id_)
        return _one(self.db, "SELECT number FROM entries WHERE odd_id=?", id_) if number is None else number

    def _numbers(self, ids: Iterable[str]) -> str:
        return json.dumps([number for id_ in ids if (number := self._number(id_)) is not None])

    def _odd_number(self) -> int:
        """A row for an identity that is none of this stream's offsets: below all the others."""
        self.flush()
        return min(_one(self.db, "SELECT min(number) FROM entries") or 0, 0) - 1


def number_of(id_: str) -> int | None:
    """The row number of an identity that is a position in this stream; None for any other."""
    if len(id_) < 12 and id_.isascii() and id_.isdigit() and id_[0] != "0":  # nearly all of them
        return int(id_) << ITEM_BITS
    offset, _, item = id_.partition(":")
    if not (id_.isascii() and offset.isdigit() and (not item or item.isdigit())) or len(id_) > 40:
        return None
    pos = Position(int(offset), int(item or 0))
    if pos.id != id_ or pos.item >= 2**ITEM_BITS or pos.offset >= MOST_OFFSET:
        return None
    return pos.offset << ITEM_BITS | pos.item


def id_of(number: int, odd_id: str | None) -> str:
    """The identity of the entry in that row."""
    return odd_id or Position(number >> ITEM_BITS, number & (2**ITEM_BITS - 1)).id


def pending_of(row: tuple[Any, ...]) -> Pending:
    """The entry that a row of COLUMNS is."""
    number, odd, po, pi, ro, ri, jid, due, bury, fault, n, source, key, cls, queue, count, ec, em, at, tags, raw = row
    return Pending(
        id=id_of(number, odd),
        pos=Position(po, pi),
        rev=Position(ro, ri),
        jid=jid,
        due=due,
        raw=raw,
        summary=Summary(cls, queue, count, ec, em, at, () if tags == "[]" else tuple(json.loads(tags))),
        key=key,
        bury=bool(bury),
        fault=None if fault is None else tuple(json.loads(fault)),
        claim=None if n is None else Claim(n, source),
    )


def _row(number: int, entry: Pending) -> tuple[Any, ...]:
    s = entry.summary
    odd = None if number >= 0 else entry.id
    tags = text.dump(list(s.tags)).decode() if s.tags else "[]"
    return (
        number, odd, *entry.pos, *entry.rev, entry.jid, entry.due, entry.bury, _fault(entry), *_claim(entry), entry.key,
        s.cls, s.queue, s.retry_count, s.error_class, s.error_message, s.at, tags, entry.raw,
    )  # fmt: skip


def _fault(entry: Pending) -> str | None:
    return None if entry.fault is None else json.dumps(entry.fault)


def _claim(entry: Pending) -> tuple[int | None, str | None]:
    return (None, None) if entry.claim is None else (entry.claim.n, entry.claim.source)


def _one(db: sqlite3.Connection, question: str, *fields: Any) -> Any:
    row = db.execute(question, fields).fetchone()
    return None if row is None else row[0]
