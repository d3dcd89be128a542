"""Pages of a delayed set, as a store would give them: sorted, filtered, counted, searched, at any size.

A page is found in two steps: the numbers of its rows by an index, and then those rows. Counts by class and queue are
kept by the fold. What no index can order, a search for words or a tag, is answered from the newest MOST that match.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from amqpjobs.model import names
from amqpjobs.model.protocol import Target
from amqpjobs.streams.entry_table import id_of
from amqpjobs.streams.rows import Row, rows
from amqpjobs.streams.search_index import SHORTEST_JID, SearchIndex, WordFilter
from amqpjobs.streams.sqlite_store import SqliteStore

MOST = 2000
"""Matches of a search that are looked at; of more, the newest."""
FEW = 10_000
"""Entries of a class or queue up to which they are sorted for a page in an order that no index has."""

_AT, _DUE = "ifnull(at, 0)", "ifnull(due, 0)"
SORTS = ("due", "at", "failed_at", "jid", "class", "queue")
"""How a page may be sorted; with "-" before it, downwards. `at`, which may also be called `failed_at`, is when it
failed, died or was enqueued. What is dead is due at no time: `due` is there the same as `at`."""


def indexes(stream: str) -> dict[str, str]:
    """What lists of the stream need beside what its fold and its leader do."""
    time = _time(stream)
    return {
        "lists_due": f"entries ({_DUE})",
        "lists_at": f"entries ({_AT})",
        "lists_class": f"entries (cls, {time})",
        "lists_queue": f"entries (queue, {time})",
        "lists_both": f"entries (cls, queue, {time})",
        "lists_error": f"entries (error_class, {time})",
    }


class Search(NamedTuple):
    """What a page is asked for. `after` is the `after` of the page before; `q` is free text; "" does not filter.

    `since` and `until` (seconds since 1970; until is not included) bound the time that the list goes by: when what
    waits is due, when what is dead died.
    """

    q: str = ""
    cls: str = ""
    queue: str = ""
    tag: str = ""
    sort: str = "due"
    limit: int = 25
    offset: int = 0
    after: str = ""
    error: str = ""
    since: float | None = None
    until: float | None = None

    @property
    def narrowed(self) -> bool:
        """Whether it asks for more than classes and queues, of which counts are kept."""
        return bool(self.error) or self.since is not None or self.until is not None


class Page(NamedTuple):
    """Some rows of a list.

    `total` entries are in the set, `matching` of them match: no fewer, and exactly so many when `exact`. `after` leads
    to the next page, None: this is the last. `indexed`: the offset up to which a search by text or tag knows entries,
    None when it knows all.
    """

    rows: list[Row]
    total: int
    matching: int
    exact: bool
    after: str | None
    indexed: int | None


class Listing:
    """Answers from a view's file. Without an index it orders what it needs itself, in more time."""

    def __init__(self, store: SqliteStore, stream: str, index: SearchIndex | None) -> None:
        self._store = store
        self._index = index
        self._words = WordFilter(store.db)
        time = _time(stream)
        self._orders: Mapping[str, tuple[str, ...]] = {
            "due": (time,), "at": (_AT,), "failed_at": (_AT,), "jid": ("jid",),
            "class": ("cls", time), "queue": ("queue", time),
        }  # fmt: skip
        self._time = time

    def page(self, search: Search) -> Page:
        """One page. Raises ValueError for a sort that there is none of, and for an `after` of another list."""
        self._store.flush()
        keys = (*self._order(search), "number")
        last = _last(search.sort, search.after, len(keys)) if search.after else []
        among = self._candidates(search)
        matching, exact = self._matching(search, among)
        found = self._numbers(search, keys, last, among, matching) if matching else []
        more = len(found) > search.limit
        found = found[: search.limit]
        return Page(
            rows=rows(self._store.db, [number for *_, number in found]),
            total=self._store.count(),
            matching=matching,
            exact=exact,
            after=_after(search.sort, found[-1]) if more else None,
            indexed=None if among is None or self._index is None else self._index.behind(),
        )

    def names(self, limit: int) -> tuple[list[str], list[str]]:
        """The classes and the queues that there are, at most so many of each, in order."""
        self._store.flush()
        found = self._store.db.execute("SELECT DISTINCT cls FROM counts LIMIT ?", (limit,)).fetchall()
        queues = self._store.db.execute("SELECT DISTINCT queue FROM counts LIMIT ?", (limit,)).fetchall()
        return [cls for (cls,) in found], sorted(queue for (queue,) in queues)

    def of_jid(self, jid: str, limit: int) -> list[Row]:
        """The entries of a jid, the newest first."""
        self._store.flush()
        asked = "SELECT number FROM entries WHERE jid=? ORDER BY number DESC LIMIT ?"
        return rows(self._store.db, [number for (number,) in self._store.db.execute(asked, (jid, limit))])

    def targets(self, search: Search, limit: int) -> list[Target]:
        """The identities of all that matches, the newest first, at most so many. Raises ValueError where a search for
        words or a tag has more matches than it looks at: nobody can know then what all are."""
        self._store.flush()
        among = self._candidates(search)
        if among is not None and len(among) > MOST:
            raise ValueError(f"more than {MOST:,} match: narrow it down with more words, or leave the words out")
        conditions, fields = self._filter(search)
        if among is not None:
            conditions, fields = _among(search, among, conditions, fields)
        asked = f"SELECT number, odd_id, jid FROM entries{_where(conditions)} ORDER BY number DESC LIMIT ?"  # noqa: S608
        found = self._store.db.execute(asked, (*fields, limit))
        return [Target(jid, id_of(number, odd)) for number, odd, jid in found]

    def errors(self, limit: int) -> list[tuple[str, int]]:
        """The error classes of what is there and how many have each, the most first."""
        self._store.flush()
        asked = "SELECT error_class, count(*) FROM entries GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?"
        return self._store.db.execute(asked, (limit,)).fetchall()

    def _candidates(self, search: Search) -> list[int] | None:
        """The numbers of what may match by text and tag, the newest first, one too many at most; None: all."""
        q = search.q.strip()
        if not q and not search.tag:
            return None
        found: list[int] = []
        if self._index is not None:
            found = self._found(self._index, q, cls=search.cls, queue=search.queue, tag=search.tag)
        if len(q) >= SHORTEST_JID:
            named = "SELECT number FROM entries WHERE jid >= ? AND jid < ? LIMIT ?"
            found += [number for (number,) in self._store.db.execute(named, (q, q + "\U0010ffff", MOST + 1))]
        return sorted(set(found), reverse=True)[: MOST + 1]

    def _found(self, index: SearchIndex, q: str, **marks: str) -> list[int]:
        """What matches by the index: where the other filters leave few, only these are searched for the words."""
        few = index.find("", MOST + 1, **marks)
        if not q or (any(marks.values()) and not few):
            return few
        if 0 < len(few) <= MOST:
            return self._words.matching(few, q, indexed=True)
        return index.find(q, MOST + 1, **marks)

    def _matching(self, search: Search, among: list[int] | None) -> tuple[int, bool]:
        conditions, fields = self._filter(search)
        if among is None and search.narrowed:
            hint = self._hint(search, (self._time,), FEW + 1)
            counted = f"SELECT count(*) FROM entries{hint}{_where(conditions)}"  # noqa: S608 (columns)
            return self._store.db.execute(counted, fields).fetchone()[0], True
        if among is None:
            counted = f"SELECT coalesce(sum(n), 0) FROM counts{_where(conditions)}"  # noqa: S608 (columns)
            return self._store.db.execute(counted, fields).fetchone()[0], True
        conditions, fields = _among(search, among, conditions, fields)
        (count,) = self._store.db.execute(f"SELECT count(*) FROM entries{_where(conditions)}", fields).fetchone()  # noqa: S608
        return count, len(among) <= MOST

    def _numbers(
        self, search: Search, keys: tuple[str, ...], last: list[Any], among: list[int] | None, matching: int
    ) -> list[tuple[Any, ...]]:
        """The keys of a page's rows and of one more, the number as the last of each; `last` are those before them."""
        down = search.sort.startswith("-")
        conditions, fields = self._filter(search)
        if among is not None:
            conditions, fields = _among(search, among, conditions, fields)
        if last:
            # the first condition follows from the second; only it makes the index begin where the page does
            conditions.append(f"{keys[0]} {'<=' if down else '>='} ?")
            conditions.append(f"({','.join(keys)}) {'<' if down else '>'} ({','.join('?' * len(keys))})")
            fields += [last[0], *last]
        order = ", ".join(f"{key}{' DESC' if down else ''}" for key in keys)
        hint = "" if among is not None else self._hint(search, keys[:-1], matching)
        question = f"SELECT {', '.join(keys)} FROM entries{hint}{_where(conditions)} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608
        return self._store.db.execute(question, (*fields, search.limit + 1, search.offset)).fetchall()

    def _order(self, search: Search) -> tuple[str, ...]:
        """The columns to sort by, without those that are the same in every row."""
        name = search.sort.removeprefix("-")
        if name not in self._orders:
            raise ValueError(f"sort must be one of {', '.join(SORTS)}, or one of them with - before it")
        fixed = {"cls": search.cls, "queue": search.queue}
        return tuple(column for column in self._orders[name] if not fixed.get(column))

    def _filter(self, search: Search) -> tuple[list[str], list[Any]]:
        given = {
            "cls=?": search.cls or None, "queue=?": search.queue or None, "error_class=?": search.error or None,
            f"{self._time} >= ?": search.since, f"{self._time} < ?": search.until,
        }  # fmt: skip
        return [each for each, value in given.items() if value is not None], [
            value for value in given.values() if value is not None
        ]

    def _hint(self, search: Search, order: tuple[str, ...], matching: int) -> str:
        """The index to go by: the planner cannot know how many entries a class has."""
        name = self._best(search, order, matching)
        return f" INDEXED BY {name}" if self._store.has_index(name) else ""

    def _best(self, search: Search, order: tuple[str, ...], matching: int) -> str:
        if search.error and (order == (self._time,) or matching <= FEW):
            return "lists_error"
        if search.narrowed and matching <= FEW and not (search.cls or search.queue):
            return "lists_at" if self._time == _AT else "lists_due"
        filtered = "lists_both" if search.cls and search.queue else "lists_class" if search.cls else "lists_queue"
        if (search.cls or search.queue) and order == (self._time,):
            return filtered
        if search.cls and order == ("queue", self._time):
            return "lists_both"
        if (search.cls or search.queue) and matching <= FEW:
            return filtered
        by = {"jid": "entries_jid", "cls": "lists_class", "queue": "lists_queue", _AT: "lists_at", _DUE: "lists_due"}
        return by[order[0]]


def _time(stream: str) -> str:
    return _AT if stream == names.DEAD else _DUE


def _among(search: Search, among: list[int], conditions: list[str], fields: list[Any]) -> tuple[list[str], list[Any]]:
    """Only those numbers, and of these what really has the tag."""
    conditions = ["number IN (SELECT value FROM json_each(?))", *(f"+{each}" for each in conditions)]
    fields = [json.dumps(among[:MOST]), *fields]
    if search.tag:
        conditions.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value=?)")
        fields.append(search.tag)
    return conditions, fields


def _where(conditions: list[str]) -> str:
    return " WHERE " + " AND ".join(conditions) if conditions else ""


def _after(sort: str, last: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, *last]).encode()).decode().rstrip("=")


def _last(sort: str, after: str, length: int) -> list[Any]:
    """The keys of the last row before. Raises ValueError for what is none of this list's."""
    try:
        found = json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != length + 1 or found[0] != sort:
        raise ValueError("after: not the end of a page of this list in this order")
    keys: list[Any] = found[1:]
    if not all(isinstance(key, str | int | float) and _fits(key) for key in keys):
        raise ValueError("after: not the end of a page of this list in this order")
    return keys


def _fits(key: Any) -> bool:
    if isinstance(key, str):
        return key.encode("utf-8", "replace").decode() == key
    return not isinstance(key, int) or -(2**63) <= key < 2**63
