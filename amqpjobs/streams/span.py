"""How many bytes of a stream lie between an offset and its tail, as far as this view read them."""

from __future__ import annotations

import sqlite3

SCHEMA = "CREATE TABLE IF NOT EXISTS marks (offset INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)"

MARK_BYTES = 64 * 1024
"""A mark is set each time so many bytes were read."""
FRAME = 32
"""What a message takes on the broker's disk beside its body, about."""


class Span:
    """Marks at offsets, with the bytes read until there. The caller opens and commits the transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.execute(SCHEMA)
        self._load()

    def _load(self) -> None:
        last = self._db.execute("SELECT offset, bytes FROM marks ORDER BY offset DESC LIMIT 1").fetchone()
        self._marked: int | None = None if last is None else last[1]
        self._total: int = last[1] if last else 0

    def rolled_back(self) -> None:
        """Forget what was counted in a transaction that did not commit."""
        self._load()

    def add(self, offset: int, size: int) -> None:
        """One more message was read."""
        if self._marked is None or self._total - self._marked >= MARK_BYTES:
            self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (offset, self._total))
            self._marked = self._total
        self._total += size + FRAME

    def since(self, offset: int) -> int:
        """Bytes from about `offset` to what was read last."""
        below = "SELECT bytes FROM marks WHERE offset<=? ORDER BY offset DESC LIMIT 1"
        row = self._db.execute(below, (offset,)).fetchone()
        row = row or self._db.execute("SELECT bytes FROM marks ORDER BY offset LIMIT 1").fetchone()
        return 0 if row is None else self._total - int(row[0])

    def forget(self, before: int) -> None:
        """Drop the marks that no entry stands at or after any more."""
        at = "(SELECT max(offset) FROM marks WHERE offset<=?)"
        self._db.execute(f"DELETE FROM marks WHERE offset<{at}", (before,))  # noqa: S608 (a constant)
