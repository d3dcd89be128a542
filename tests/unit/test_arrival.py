"""The short reading of an entry, which folds use, says what the whole reading says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import names, reading
from amqpjobs.model.arrival import _QUICK, arrive, derived_jid, pending, read_entry, read_pending
from amqpjobs.model.messages import ScheduledJob, Unreadable
from amqpjobs.model.protocol import Position
from amqpjobs.model.release import quick, release
from tests.unit.odd import JOBS, PLAIN, VALUES, maybe, objects, written

NOW = 1_700_000_000.5
TIMES = st.sampled_from([0, 5, 1.5e9, 1764300000.25, -3.0, 1e11, 10**400, "2024-05-06T07:08:09Z", True])
ENTRIES = objects(
    jid=maybe(st.sampled_from(["a1", "", "é", "\ud800", 7])),
    scheduled_at=maybe(TIMES),
    retry_at=maybe(TIMES),
    died_at=maybe(TIMES),
    failed_at=maybe(TIMES),
    retry_count=maybe(st.integers(-2, 1100)),
    error_class=maybe(st.sampled_from(["E", "\ud800", "é"])),
    error_message=maybe(st.text(max_size=5)),
    origin=maybe(st.just("retries/5")),
    reschedule=maybe(st.booleans()),
    job=maybe(st.one_of(JOBS, st.just(PLAIN))),
)


@pytest.mark.parametrize("stream", names.DELAYED)
@given(value=st.one_of(ENTRIES, VALUES))
def test_the_short_reading_says_what_the_whole_one_says(stream: str, value: Any) -> None:
    pos = Position(12, 3)
    piece = reading.Piece(3, written(value), value)
    read = read_entry(stream, piece, jid=derived_jid(stream, pos, piece.raw))
    found = arrive(stream, pos, piece)
    assert repr(found.entry) == repr(pending(stream, pos, read))  # repr: NaN is NaN, and 1 is not 1.0
    assert found.readable == (not isinstance(read, Unreadable))
    assert found.replaces == (isinstance(read, ScheduledJob) and read.reschedule)


@pytest.mark.parametrize("stream", names.DELAYED)
def test_what_clients_send_needs_no_whole_reading(stream: str) -> None:
    entry = {"jid": "a1", "scheduled_at": 5, "retry_at": 6.5, "died_at": 7.5, "retry_count": 1, "job": PLAIN}
    assert _QUICK[stream](Position(0, 0), reading.Piece(0, written(entry), entry)) is not None


@pytest.mark.parametrize("stream", names.DELAYED)
@given(value=ENTRIES)
def test_the_short_release_is_what_the_whole_one_is(stream: str, value: Any) -> None:
    pos = Position(12, 3)
    entry = arrive(stream, pos, reading.Piece(3, written(value), value)).entry
    short = quick(stream, entry, now=NOW)
    if short is not None:
        read = read_pending(stream, entry)
        assert not isinstance(read, Unreadable)
        assert short == release(stream, read, now=NOW)


@pytest.mark.parametrize("stream", [names.SCHEDULED, names.RETRIES])
def test_what_clients_and_workers_send_is_released_the_short_way(stream: str) -> None:
    times = {"scheduled_at": 5.0, "retry_at": 5.0, "retry_count": 3}
    value = {"jid": "a1", **times, "job": PLAIN | {"enqueued_at": 4.0, "priority": 2, "tags": ["x"]}}
    entry = arrive(stream, Position(12, 3), reading.Piece(3, written(value), value)).entry
    read = read_pending(stream, entry)
    assert not isinstance(read, Unreadable)
    assert quick(stream, entry, now=NOW) == release(stream, read, now=NOW)
