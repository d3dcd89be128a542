"""The lines of a list: what a page shows of an entry, none of it longer than a page needs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from amqpjobs.model.pending import Pending
from amqpjobs.streams.entry_table import id_of

WHOLE = 16 * 1024
"""Bytes up to which a page's row has the whole entry."""
HEAD = 8000
"""Bytes of what is longer."""
WORDS = 2001
"""Characters of each text: one more than is shown, so that what was cut can be told."""
_TAGS = 16 * 1024

_COLUMNS = f"""number, odd_id, substr(jid, 1, {WORDS}), due, substr(cls, 1, {WORDS}), substr(queue, 1, {WORDS}),
 retry_count, substr(error_class, 1, {WORDS}), substr(error_message, 1, {WORDS}), at,
 CASE WHEN length(tags) <= {_TAGS} THEN tags ELSE '[]' END, claim_n IS NOT NULL, length(raw),
 CASE WHEN length(raw) <= {WHOLE} THEN raw END"""
_ROWS = f"SELECT {_COLUMNS} FROM entries WHERE number IN (SELECT value FROM json_each(?))"  # noqa: S608 (constants only)


class Row(NamedTuple):
    """One line of a list. `raw` is the entry, or its first bytes where `size` is greater than its length."""

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
    size: int
    raw: bytes


def rows(db: sqlite3.Connection, numbers: Sequence[int]) -> list[Row]:
    """The entries of those numbers, in that order. A long body is neither read nor kept beyond its head."""
    if not numbers:
        return []
    found = {row[0]: row[1:] for row in db.execute(_ROWS, (json.dumps(numbers),))}
    return [_row(db, number, *found[number]) for number in numbers if number in found]


def row_of(entry: Pending) -> Row:
    """A whole entry as a line of a list."""
    s = entry.summary
    return Row(
        entry.id, entry.jid, entry.due, s.cls, s.queue, s.retry_count, s.error_class, s.error_message, s.at,
        list(s.tags), entry.claim is not None, len(entry.raw), entry.raw,
    )  # fmt: skip


def head(db: sqlite3.Connection, number: int) -> bytes:
    """The first bytes of a body, read without the rest."""
    with db.blobopen("entries", "raw", number, readonly=True) as blob:
        return blob.read(HEAD)


def _row(db: sqlite3.Connection, number: int, odd: str | None, *fields: Any) -> Row:
    jid, due, cls, queue, count, error_class, error_message, at, tags, claimed, size, raw = fields
    return Row(
        id_of(number, odd), jid, due, cls, queue, count, error_class, error_message, at, json.loads(tags),
        bool(claimed), size, head(db, number) if raw is None else raw,
    )  # fmt: skip
