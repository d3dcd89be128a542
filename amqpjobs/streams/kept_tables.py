"""What retention needs of a delayed set's store: which entries stand lowest, how much all of them are, what is void."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from amqpjobs.model.pending import Pending, Source
from amqpjobs.model.position import Position
from amqpjobs.streams.entry_table import SELECT, EntryTable, pending_of

SCHEMA = """
CREATE TABLE IF NOT EXISTS seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS void (offset INTEGER, item INTEGER, PRIMARY KEY (offset, item)) WITHOUT ROWID;
"""

CARRY_BYTES = 1024 * 1024
"""Bodies that are carried at once, and at least one."""


class KeptTables(EntryTable):
    """Entries, the appenders' numbers, and void positions."""

    def __init__(self, db: sqlite3.Connection, indexes: Mapping[str, str]) -> None:
        db.executescript(SCHEMA)
        self._voids: set[Position] | None = None
        super().__init__(db, indexes)

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        super().rolled_back()
        self._voids = None

    def sources(self, limit: int) -> list[Source]:
        """Those that appended last, the latest first."""
        self.flush()
        rows = self.db.execute("SELECT source, seq, offset FROM seqs ORDER BY offset DESC, source LIMIT ?", (limit,))
        return [Source(*row) for row in rows]

    def low(self) -> Position | None:
        """The least position of a pending entry."""
        found = self._lowest("", 1)
        return found[0].pos if found else None

    def oldest(self, limit: int) -> list[Pending]:
        """What is unclaimed, the least position first; fewer when they are large."""
        taken: list[Pending] = []
        size = 0
        for entry in self._lowest("WHERE claim_n IS NULL", limit):
            size += len(entry.raw)
            if taken and size > CARRY_BYTES:
                break
            taken.append(entry)
        return taken

    def _lowest(self, where: str, limit: int) -> list[Pending]:
        self.flush()
        rows = self.db.execute(f"{SELECT} {where} ORDER BY pos_offset, pos_index LIMIT ?", (limit,))
        return [pending_of(row) for row in rows]

    def count_below(self, offset: int) -> int:
        """How many pending entries stand before an offset."""
        self.flush()
        return int(self.db.execute("SELECT count(*) FROM entries WHERE pos_offset<?", (offset,)).fetchone()[0])

    def is_void(self, pos: Position) -> bool:
        """Whether what stands there has no effect; the few that there are stay in memory."""
        return pos in self._void()

    def keep_void(self, pos: Position) -> None:
        """Remember that it has none."""
        self._void().add(pos)
        self.db.execute("INSERT OR IGNORE INTO void VALUES (?, ?)", pos)

    def voids(self) -> list[Position]:
        """All that are remembered, in order."""
        return sorted(self._void())

    def forget_voids(self, before: int) -> None:
        """Drop those of smaller offsets."""
        if any(pos.offset < before for pos in self._void()):
            self.db.execute("DELETE FROM void WHERE offset<?", (before,))
            self._voids = None

    def _void(self) -> set[Position]:
        if self._voids is None:
            self._voids = {Position(*row) for row in self.db.execute("SELECT offset, item FROM void")}
        return self._voids
