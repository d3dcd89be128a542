"""The entries of a set without their bodies: what is listed into commands, and what the leader drops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from amqpjobs.model.protocol import Position
from amqpjobs.streams.entry_table import EntryTable, id_of
from amqpjobs.streams.search_index import WordFilter, begins
from amqpjobs.streams.sqlite_store import FIRST


class Mark(NamedTuple):
    """One entry: its row, who it is, the revision that was seen, and when it failed or died (seconds since 1970)."""

    number: int
    entry: str
    jid: str
    rev: Position
    at: float | None


class Where(NamedTuple):
    """Which entries of a set are meant, as lists are searched; None: whatever it is. `q` is free text."""

    cls: str | None = None
    queue: str | None = None
    tag: str | None = None
    q: str | None = None

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """What is given, under the names that people use."""
        named = zip(("class", "queue", "tag", "q"), self, strict=True)
        return tuple((name, value) for name, value in named if value is not None)


_SELECT = "SELECT number, odd_id, jid, rev_offset, rev_index, at FROM entries "
_CLAUSES = {"class": "cls=?", "queue": "queue=?", "tag": "EXISTS (SELECT 1 FROM json_each(tags) WHERE value=?)"}
_IDLE = "claim_n IS NULL AND due IS NULL "


def newest(table: EntryTable) -> int:
    """The number of the newest entry; those that come later have greater ones."""
    table.flush()
    return int(table.db.execute("SELECT coalesce(max(number), ?) FROM entries", (FIRST,)).fetchone()[0])


def page(table: EntryTable, after: int, until: int, where: Where, limit: int) -> tuple[list[Mark], int | None]:
    """What matches among the next entries with numbers above `after` and not above `until`, in the order of numbers.

    Also after which number the next page begins; None: there is none. A page may have fewer than `limit`, or none.
    """
    table.flush()
    clauses = "".join(f"AND {_CLAUSES[name]} " for name, _ in where.said if name in _CLAUSES)
    values = [value for name, value in where.said if name in _CLAUSES]
    asked = _SELECT + "WHERE number>? AND number<=? " + clauses + "ORDER BY number LIMIT ?"
    found = _marks(table.db.execute(asked, (after, until, *values, limit)))
    following = found[-1].number if len(found) == limit else None
    if where.q and where.q.strip():
        having = set(WordFilter(table.db).matching([mark.number for mark in found], where.q))
        found = [mark for mark in found if mark.number in having or begins(mark.jid, where.q.strip())]
    return found, following


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
