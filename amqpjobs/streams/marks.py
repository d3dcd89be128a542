"""The entries of a set without their bodies: what is listed into commands, and what the leader drops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from amqpjobs.model.protocol import Position
from amqpjobs.streams.entry_table import EntryTable, id_of
from amqpjobs.streams.sqlite_store import FIRST


class Mark(NamedTuple):
    """One entry: its row, who it is, the revision that was seen, and when it failed or died (seconds since 1970)."""

    number: int
    entry: str
    jid: str
    rev: Position
    at: float | None


class Where(NamedTuple):
    """Which entries of a set are meant; None: whatever it is."""

    cls: str | None = None
    queue: str | None = None


_SELECT = "SELECT number, odd_id, jid, rev_offset, rev_index, at FROM entries "
_IDLE = "claim_n IS NULL AND due IS NULL "


def newest(table: EntryTable) -> int:
    """The number of the newest entry; those that come later have greater ones."""
    table.flush()
    return int(table.db.execute("SELECT coalesce(max(number), ?) FROM entries", (FIRST,)).fetchone()[0])


def page(table: EntryTable, after: int, until: int, where: Where, limit: int) -> list[Mark]:
    """What matches, with numbers above `after` and not above `until`, in the order of numbers."""
    table.flush()
    clauses = "".join(f"AND {name}=? " for name, value in zip(Where._fields, where, strict=True) if value is not None)
    values = [value for value in where if value is not None]
    asked = _SELECT + "WHERE number>? AND number<=? " + clauses + "ORDER BY number LIMIT ?"
    return _marks(table.db.execute(asked, (after, until, *values, limit)))


def oldest_idle(table: EntryTable, limit: int) -> list[Mark]:
    """What came first and waits for a person: nobody claimed it, and nobody asked for it to run.

    What is of an earlier life of the stream comes before the rest.
    """
    table.flush()
    earlier = _SELECT + f"WHERE number<0 AND {_IDLE} ORDER BY pos_offset, pos_index LIMIT ?"
    found = _marks(table.db.execute(earlier, (limit,)))
    later = _SELECT + f"WHERE number>=0 AND {_IDLE} ORDER BY number LIMIT ?"
    return found + _marks(table.db.execute(later, (limit - len(found),)))


def _marks(rows: Iterable[tuple[Any, ...]]) -> list[Mark]:
    return [Mark(n, id_of(n, odd), jid, Position(offset, item), at) for n, odd, jid, offset, item, at in rows]
