"""Words to entries: a full-text index (FTS5) that follows behind the fold, in steps so small that nothing waits for it.

Its own mark, `indexed.upto`, is the greatest row number that it has seen. What the fold adds comes beyond the mark;
what it takes out, or puts below the mark, triggers note in `stale`. Debian's SQLite has no `contentless_delete`, so
the index keeps the clipped text that it was made of.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from amqpjobs.model import text
from amqpjobs.streams.entry_table import ITEM_BITS
from amqpjobs.streams.rows import WHOLE, head

STEP = 100
"""Entries indexed at once: some 10 ms."""
MERGED = 400
"""Pages of the index merged after each step. Left to itself it merges much at once, for half a second and more."""
CLIP = 1000
"""Characters of an entry's arguments that are indexed, and of its error message."""
SHORT = 300
"""The same for class, queue and error class; tags together may have CLIP."""

SHORTEST_JID = 4
"""Characters from which on a search is also for jids that begin so."""

BEGINNING = 5
"""Characters of the longest beginnings that are in the index as such."""

_TOKENS = "tokenize='unicode61 remove_diacritics 2'"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS indexed (one INTEGER PRIMARY KEY CHECK (one = 1), upto INTEGER NOT NULL);
INSERT OR IGNORE INTO indexed VALUES (1, -1);
CREATE TABLE IF NOT EXISTS stale (number INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5(
  words, marks, {_TOKENS}, prefix='2 3 4 {BEGINNING}', columnsize=0
);
INSERT INTO search (search, rank) VALUES ('automerge', 0);
INSERT INTO search (search, rank) VALUES ('crisismerge', 1000);
CREATE TRIGGER IF NOT EXISTS entry_gone AFTER DELETE ON entries WHEN old.number <= (SELECT upto FROM indexed)
  BEGIN INSERT OR IGNORE INTO stale VALUES (old.number); END;
CREATE TRIGGER IF NOT EXISTS entry_late AFTER INSERT ON entries WHEN new.number <= (SELECT upto FROM indexed)
  BEGIN INSERT OR IGNORE INTO stale VALUES (new.number); END;
"""  # noqa: S608 (constants only)
_ENTRIES = f"""SELECT number, cls, queue, error_class, substr(error_message, 1, {CLIP}), tags,
 CASE WHEN length(raw) <= {WHOLE} THEN raw END FROM entries WHERE """  # noqa: S608 (constants only)
_FEW = """INSERT INTO temp.few (rowid, words)
 SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"""
_KNOWN = "SELECT rowid, words FROM search WHERE rowid IN (SELECT value FROM json_each(?))"
_NUMBERS = "number IN (SELECT value FROM json_each(?))"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class SearchIndex:
    """The index in the file of a view. Used from the view's thread; opens its own transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(_SCHEMA)

    def step(self, limit: int = STEP) -> bool:
        """Index up to so many entries more; whether there may be others."""
        self._db.execute("BEGIN")
        try:
            done = self._mend(limit)
            done += self._advance(limit - done)
            if done:
                self._db.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGED,))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return done >= limit

    def behind(self) -> int | None:
        """The offset up to which all is indexed; None when everything is."""
        (upto,) = self._db.execute("SELECT upto FROM indexed").fetchone()
        waiting = "SELECT 1 FROM stale UNION ALL SELECT 1 FROM entries WHERE number > ? LIMIT 1"
        return upto >> ITEM_BITS if self._db.execute(waiting, (upto,)).fetchone() else None

    def find(self, words: str, limit: int, **marks: str) -> list[int]:
        """Numbers of the newest entries, at most so many, that have all the words and all the marks.

        An entry that has left since may be among them. A word may be the beginning of one, except the one-letter kind.
        A long one is first taken for a whole word: if there are as many as are wanted, that is all. As a beginning it
        has the index read all of its matches, of a common one a million, before the first is known.
        """
        marked = [f'marks : "{_mark(kind, value)}"' for kind, value in marks.items() if value]
        found: list[int] = []
        for terms in dict.fromkeys((_terms(words, whole=True), _terms(words))):
            if (terms or marked) and len(found) < limit:
                question = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?"
                rows = self._db.execute(question, (" AND ".join([*terms, *marked]), limit))
                found = [number for (number,) in rows]
        return found

    def _mend(self, limit: int) -> int:
        """Bring what changed behind the mark in line."""
        numbers = self._db.execute("SELECT number FROM stale LIMIT ?", (limit,)).fetchall()
        for number in numbers:
            self._db.execute("DELETE FROM search WHERE rowid=?", number)
            for row in self._db.execute(_ENTRIES + "number=?", number).fetchall():
                self._add(*row)
            self._db.execute("DELETE FROM stale WHERE number=?", number)
        return len(numbers)

    def _advance(self, limit: int) -> int:
        beyond = "number > (SELECT upto FROM indexed) ORDER BY number LIMIT ?"
        rows = self._db.execute(_ENTRIES + beyond, (max(limit, 0),)).fetchall()
        for row in rows:
            self._add(*row)
        if rows:
            self._db.execute("UPDATE indexed SET upto=?", (rows[-1][0],))
        return len(rows)

    def _add(self, number: int, *fields: Any) -> None:
        labels = text.parse(fields[4].encode()) if fields[4] != "[]" else []
        marks = [_mark("cls", fields[0]), _mark("queue", fields[1]), *(_mark("tag", each) for each in labels)]
        row = (number, _words(self._db, number, *fields), " ".join(marks))
        self._db.execute("INSERT INTO search (rowid, words, marks) VALUES (?, ?, ?)", row)


class WordFilter:
    """Which of some entries have all the words of a search: by the same rules as the index, without one.

    For a view that has none, and where another filter leaves so few that all of the words' matches are the longer way:
    an index has to read every match of the beginning of a common word.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def matching(self, numbers: Sequence[int], words: str, *, indexed: bool = False) -> list[int]:
        """Those of these row numbers, in order; with `indexed`, as the index knows them. It opens no transaction."""
        terms = _terms(words)
        if not terms or not numbers:
            return []
        self._db.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.few USING fts5(words, content='', {_TOKENS})")
        self._db.execute("INSERT INTO temp.few (few) VALUES ('delete-all')")
        # in one statement: a transaction of its own for each row takes 30 times as long
        self._db.execute(_FEW, (json.dumps(self._rows(numbers, indexed)),))
        found = self._db.execute("SELECT rowid FROM temp.few WHERE few MATCH ? ORDER BY rowid", (" AND ".join(terms),))
        return [number for (number,) in found]

    def _rows(self, numbers: Sequence[int], indexed: bool) -> list[tuple[int, str]]:
        these = (json.dumps(numbers),)
        if indexed:
            return self._db.execute(_KNOWN, these).fetchall()
        rows = self._db.execute(_ENTRIES + _NUMBERS, these).fetchall()
        return [(number, _words(self._db, number, *fields)) for number, *fields in rows]


def begins(jid: str, beginning: str) -> bool:
    """Whether a search for that text is one for this jid."""
    return len(beginning) >= SHORTEST_JID and jid.startswith(beginning)


def _terms(words: str, *, whole: bool = False) -> tuple[str, ...]:
    """The conditions for the words; with `whole`, none of the long ones may be but the beginning of one."""
    found = [word for word in words.split() if any(map(str.isalnum, word))]
    return tuple(f"words : {_quoted(word, whole=whole and len(word) > BEGINNING)}" for word in found)


def _words(db: sqlite3.Connection, number: int, *fields: Any) -> str:
    """What of an entry is found by words."""
    cls, queue, error, message, tags, raw = fields
    names = [each[:SHORT] for each in (cls, queue, error)]
    words = [*names, *(_HUMP.sub(" ", name) for name in (names[0], names[2])), message, tags[:CLIP]]
    words.append(_arguments(raw) if raw is not None else head(db, number).decode("utf-8", "replace")[:CLIP])
    return " ".join(words)


def _arguments(raw: bytes) -> str:
    """The arguments of an entry's job as text; of what has none, its beginning."""
    try:
        value = text.parse(raw, depth=text.ENTRY_DEPTH)
    except text.NotJson:
        value = None
    job = value.get("job") if isinstance(value, dict) else None
    if not isinstance(job, dict):
        return raw.decode("utf-8", "replace")[:CLIP]
    return text.dump(text.strict(job.get("args"))).decode()[:CLIP]


def _quoted(word: str, *, whole: bool = False) -> str:
    """The word as a phrase, for `a.b@c` is several to the index, and as the beginning of one where that is not all."""
    return '"' + word.replace('"', '""') + '"' + ("*" if len(word) > 1 and not whole else "")


def _mark(kind: str, value: str) -> str:
    """One word for an exact value, whatever signs that holds."""
    return "x" + hashlib.blake2b(f"{kind}\0{value}".encode(), digest_size=8).hexdigest()
