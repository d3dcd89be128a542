"""How many bytes of a stream lie between an offset and its tail."""

from __future__ import annotations

import sqlite3

from amqpjobs.streams.span import FRAME, MARK_BYTES, Span

SIZE = MARK_BYTES - FRAME


def test_what_lies_between_an_offset_and_the_tail() -> None:
    span = Span(sqlite3.connect(":memory:"))
    assert span.since(0) == 0
    for offset in range(10):
        span.add(offset, SIZE)
    assert span.since(0) == 10 * MARK_BYTES
    assert span.since(7) == 3 * MARK_BYTES
    assert span.since(99) == MARK_BYTES


def test_small_messages_share_a_mark_and_count_too_much_rather_than_too_little() -> None:
    span = Span(sqlite3.connect(":memory:"))
    for offset in range(1000):
        span.add(offset, 100)
    exact = (1000 - 900) * (100 + FRAME)
    assert exact <= span.since(900) <= exact + MARK_BYTES


def test_what_is_forgotten_leaves_the_mark_that_the_lowest_entry_stands_after() -> None:
    db = sqlite3.connect(":memory:")
    span = Span(db)
    for offset in range(10):
        span.add(offset, SIZE)
    span.forget(7)
    assert span.since(7) == 3 * MARK_BYTES
    assert [row[0] for row in db.execute("SELECT offset FROM marks")] == [7, 8, 9]


def test_a_file_that_is_opened_again_goes_on_counting() -> None:
    db = sqlite3.connect(":memory:")
    span = Span(db)
    for offset in range(5):
        span.add(offset, SIZE)
    again = Span(db)
    again.add(5, SIZE)
    assert again.since(0) >= 5 * MARK_BYTES
