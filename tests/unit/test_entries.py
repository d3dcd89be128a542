"""The same table for the entries of the delayed streams, and for the messages that hold them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import outcomes, reading, text
from amqpjobs.model.messages import DeadJob, RetryEntry, ScheduledJob, Unreadable
from tests.unit.odd import (
    ABSENT,
    JOBS,
    NEVER,
    PLAIN,
    VALUES,
    check_job,
    maybe,
    objects,
    pieces,
    safe_words,
    same,
    written,
)

Entry = ScheduledJob | RetryEntry | DeadJob
READERS: dict[str, Callable[..., Entry | Unreadable]] = {
    "scheduled_at": reading.read_scheduled,
    "retry_at": reading.read_retry,
    "died_at": reading.read_dead,
}


def entry(member: str, when: Any, **members: Any) -> Entry | Unreadable:
    body = {"jid": "a1", "job": PLAIN, member: when} | members
    (piece,) = pieces(written({k: v for k, v in body.items() if v is not ABSENT}))
    return READERS[member](piece, jid="derived")


DUE = [
    (0, 0.0),
    (946684800, 946684800.0),
    (-1, -1.0),
    (1.5, 1.5),
    (99_999_999_999, 99_999_999_999.0),
    (100_000_000_000, 100_000_000.0),
    (1_700_000_000_123, 1_700_000_000.123),
    ("2024-05-06T07:08:09Z", 1714979289.0),
    ("2024-05-06T07:08:09", 1714979289.0),
    ("2024-05-06T07:08:09.5+02:00", 1714972089.5),
    ("2024-05-06 07:08:09,25-0130", 1714984689.25),
    ("2024-05-06t07:08z", 1714979280.0),
    ("2024-05-06T07:08:09.123456789Z", 1714979289.123456),
    ("1969-12-31T23:59:59Z", -1.0),
]


@pytest.mark.parametrize("member", READERS)
@pytest.mark.parametrize(("when", "seconds"), DUE)
def test_times_that_are_some(member: str, when: Any, seconds: float) -> None:
    found = entry(member, when)
    assert not isinstance(found, Unreadable), found
    assert (found.died_at if isinstance(found, DeadJob) else found.due) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("member", READERS)
@pytest.mark.parametrize("when", NEVER)
def test_times_that_are_none_are_dead_records(member: str, when: Any) -> None:
    found = entry(member, when)
    assert isinstance(found, Unreadable)
    assert (found.error_class, found.jid, found.queue, found.cls) == ("Malformed", "a1", "default", "SendEmailJob")
    assert member in found.error_message
    assert json.loads(found.raw)["job"] == PLAIN


@pytest.mark.parametrize("when", [-1e12, -1e300, -(10**400)])
def test_what_is_before_all_calendars_is_due_and_can_be_shown(when: Any) -> None:
    found = entry("scheduled_at", when)
    assert isinstance(found, ScheduledJob)
    assert datetime.fromtimestamp(found.due, UTC).year == 1


ENTRIES = objects(
    job=maybe(JOBS),
    jid=maybe(st.text()),
    scheduled_at=maybe(st.integers(0, 2**31)),
    retry_at=maybe(st.integers(0, 2**31)),
    died_at=maybe(st.integers(0, 2**31)),
    failed_at=maybe(st.integers(0, 2**31)),
    retry_count=maybe(st.integers()),
    properties=maybe(objects(headers=maybe(objects()), priority=maybe(st.integers()), correlation_id=maybe(st.text()))),
    raw=maybe(st.text()),
    raw_base64=maybe(st.just("AAAA")),
    error_message=maybe(st.text()),
    error_class=maybe(st.text()),
    backtrace=maybe(st.text()),
    attempt=maybe(st.integers()),
    worker_identity=maybe(st.text()),
    origin=maybe(st.text()),
)


def check_entry(found: Entry, raw: bytes) -> None:
    assert found.raw == raw
    safe_words(found.jid)
    if found.job is None:
        assert isinstance(found, DeadJob)
        assert found.original is not None
    else:
        check_job(found.job)
        assert found.job.jid == found.jid
        assert found.job_raw is not None
        assert found.job_raw in raw
        assert same(text.parse(found.job_raw), text.parse(raw)["job"])
    if not isinstance(found, ScheduledJob):
        safe_words(found.error_class, found.error_message, found.backtrace, found.worker_identity)
        assert 0 <= found.retry_count <= 1000
    if isinstance(found, DeadJob):
        safe_words(found.queue, found.origin)
    json.dumps(found.properties, allow_nan=False, ensure_ascii=False).encode()


@given(st.one_of(ENTRIES, VALUES), st.sampled_from(sorted(READERS)))
def test_every_entry_waits_or_is_a_dead_record(value: Any, member: str) -> None:
    (piece,) = pieces(b"[" + written(value) + b"]")
    found = READERS[member](piece, jid="derived")
    if not isinstance(found, Unreadable):
        check_entry(found, written(value))
        return
    assert found.raw == written(value)
    safe_words(found.error_message, found.jid, found.queue, found.cls)
    record = outcomes.unreadable(found, now=9.0, jid="x", queue=None, worker="w")
    dead = reading.read_dead(pieces(record)[0], jid="y")
    assert isinstance(dead, DeadJob)
    assert dead.original == found.raw


@given(st.binary())
def test_every_message_of_a_stream_is_entries_or_a_dead_record(body: bytes) -> None:
    found, plain = reading.pieces(body), reading.values(body)
    assert isinstance(found, Unreadable) == isinstance(plain, Unreadable)
    if isinstance(found, Unreadable):
        assert found.raw == body


@given(st.lists(VALUES, max_size=4))
def test_an_array_is_its_entries_in_order(values: list[Any]) -> None:
    body = json.dumps(values, indent=1).encode()
    found = pieces(body)
    assert [piece.index for piece in found] == list(range(len(values)))
    for piece, value in zip(found, values, strict=True):
        assert piece.raw in body
        assert same(piece.value, value)
    assert same(reading.values(body), values)


def test_one_entry_and_none_at_all() -> None:
    assert pieces(b' {"a": 1.10} ') == [(0, b'{"a": 1.10}', {"a": 1.1})]
    assert pieces(b"[]") == pieces(b" [ ] ") == []


@pytest.mark.parametrize("levels", [text.MAX_DEPTH, text.MAX_DEPTH + 1])
@pytest.mark.parametrize("body", [b'{"retry_at":1,"job":%s}', b'[{"retry_at":1,"job":%s}]'])
def test_an_entry_takes_the_deepest_job_and_none_deeper(levels: int, body: bytes) -> None:
    deepest = b'{"class":"A","args":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
    found = reading.pieces(body % deepest)
    assert isinstance(found, Unreadable) == (levels > text.MAX_DEPTH)
    assert isinstance(reading.read_job(deepest, queue="q", jid="j"), Unreadable) == (levels > text.MAX_DEPTH)


@pytest.mark.parametrize("body", [b"5", b"null", b'"x"', b"", b"{", b"[{},", b"\xff"])
def test_a_message_of_no_entries_is_one_dead_record(body: bytes) -> None:
    found = reading.pieces(body)
    assert isinstance(found, Unreadable)
    assert (found.error_class, found.raw) == ("Malformed", body)


@pytest.mark.parametrize(
    ("outer", "inner", "called"),
    [("o", "i", "o"), ("o", ABSENT, "o"), (ABSENT, "i", "i"), (ABSENT, ABSENT, "derived"), (7, ABSENT, "7")],
)
@pytest.mark.parametrize("member", READERS)
def test_an_entry_goes_by_its_own_jid_first(member: str, outer: Any, inner: Any, called: str) -> None:
    inside = {k: v for k, v in (PLAIN | {"jid": inner}).items() if v is not ABSENT}
    found = entry(member, 1, jid=outer, job=inside)
    assert not isinstance(found, Unreadable)
    assert found.job is not None
    assert found.jid == found.job.jid == called


@pytest.mark.parametrize(
    ("inner", "queue"), [(ABSENT, "default"), (None, "default"), ("low", "low"), ("a/b", "a/b"), ("\ud800", "\\ud800")]
)
def test_a_waiting_job_keeps_its_queue_whatever_it_is(inner: Any, queue: str) -> None:
    inside = {k: v for k, v in (PLAIN | {"queue": inner}).items() if v is not ABSENT}
    found = entry("retry_at", 1, job=inside)
    assert isinstance(found, RetryEntry)
    assert found.job.queue == queue


@pytest.mark.parametrize(
    ("outer", "inner", "count"), [(3, 2, 3), (ABSENT, 2, 3), ("x", 5, 6), (10**30, 0, 1000), (0, 9, 0)]
)
def test_a_retry_without_a_count_is_one_more_than_its_job(outer: Any, inner: int, count: int) -> None:
    found = entry("retry_at", 1, retry_count=outer, job=PLAIN | {"retry_count": inner})
    assert isinstance(found, RetryEntry)
    assert found.retry_count == count


def test_the_samples_of_the_specification_read_as_they_stand() -> None:
    inside = {"class": "JobClassName", "args": [1, 2, "foo"], "queue": "default", "retry": 25, "tags": ["tag1"]}
    times = {"scheduled_at": 1234567890.0, "retry_at": 1234567890.0, "died_at": 1234567890.0}
    for member, when in times.items():
        body = {"type": "x", "jid": "unique-job-id", member: when, "retry_count": 3, "failed_at": 1234567889.0}
        (piece,) = pieces(
            written(body | {"error_message": "m", "error_class": "E", "backtrace": "l1\nl2", "job": inside})
        )
        found = READERS[member](piece, jid="derived")
        assert not isinstance(found, Unreadable)
        assert found.job is not None
        assert (found.jid, found.job.cls, found.job.args) == ("unique-job-id", "JobClassName", [1, 2, "foo"])


@pytest.mark.parametrize("inner", [5, [], "x", {}, {"class": 5}, {"class": "A", "args": 5}])
def test_a_dead_record_keeps_a_job_that_is_none(inner: Any) -> None:
    found = entry("died_at", 1, job=inner, error_class="E")
    assert isinstance(found, DeadJob)
    assert (found.job, found.original, found.error_class) == (None, written(inner), "E")


@pytest.mark.parametrize("kept", [b"\xff\xfe", b"", b"text", '"é\x00'.encode()])
def test_a_record_of_raw_bytes_reads_back(kept: bytes) -> None:
    found = entry("died_at", 1, job=ABSENT, raw_base64=base64.b64encode(kept).decode(), queue="q")
    assert isinstance(found, DeadJob)
    assert (found.job, found.original, found.queue) == (None, kept, "q")


def test_a_job_that_a_worker_rejected_is_told_apart() -> None:
    found = reading.read_dead(pieces(written(PLAIN))[0], jid="derived")
    assert isinstance(found, Unreadable)
    assert (found.error_class, found.jid, found.queue, found.cls) == ("Rejected", "a1", "default", "SendEmailJob")


def test_properties_travel_as_far_as_amqp_carries_them() -> None:
    headers = {"traceparent": "00-1", "n": 1, "f": 1.5, "b": True, "z": None, "list": [1], "big": 2**63, "x" * 129: 1}
    found = entry("scheduled_at", 1, properties={"priority": 99, "correlation_id": "c", "headers": headers, "other": 1})
    assert isinstance(found, ScheduledJob)
    scalars = {"traceparent": "00-1", "n": 1, "f": 1.5, "b": True, "z": None}
    assert found.properties == {"priority": 10, "correlation_id": "c", "headers": scalars}
    assert entry("scheduled_at", 1, properties={"correlation_id": "c" * 256, "headers": {}}).properties == {}  # type: ignore[union-attr]
