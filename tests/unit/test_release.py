from __future__ import annotations

from typing import Any

import pytest

from amqpjobs.model import names, reading, text
from amqpjobs.model.messages import DeadJob, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.release import Release, release
from tests.unit.odd import written

NOW = 1_700_000_000.5
READERS = {names.SCHEDULED: reading.read_scheduled, names.RETRIES: reading.read_retry, names.DEAD: reading.read_dead}
KINDS = list(READERS)


def entry(kind: str, job: dict[str, Any] | bytes, **members: Any) -> ScheduledJob | RetryEntry | DeadJob:
    raw = job if isinstance(job, bytes) else written({"class": "A"} | job)
    times = {"scheduled_at": 1, "retry_at": 1, "died_at": 1}
    found = reading.pieces(text.dump({"jid": "a1", **times, **members, "job": text.Verbatim(raw)}))
    assert isinstance(found, list)
    read = READERS[kind](found[0], jid="derived")
    assert not isinstance(read, Unreadable), read
    return read


def released(kind: str, job: dict[str, Any] | bytes, **members: Any) -> tuple[Release, dict[str, Any]]:
    found = release(kind, entry(kind, job, **members), now=NOW)
    assert isinstance(found, Release), found
    body = text.parse(found.body)
    assert isinstance(body, dict)
    return found, body


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_sets_what_it_must_and_touches_nothing_else(kind: str) -> None:
    raw = b'{ "class" : "A","args":[1.10,1180591620717411303424,1e-7,NaN] ,"own":{"x": 1.0},"retry":3}'
    found, body = released(kind, raw)
    assert found.queue == body["queue"] == "default"
    assert (body["jid"], body["enqueued_at"], body["created_at"]) == ("a1", NOW, NOW)
    for untouched in (b'"class" : "A"', b'"args":[1.10,1180591620717411303424,1e-7,NaN]', b'"own":{"x": 1.0}'):
        assert untouched in found.body


@pytest.mark.parametrize(("kind", "count"), [(names.SCHEDULED, 2), (names.RETRIES, 7), (names.DEAD, 0)])
def test_where_the_count_of_retries_comes_from(kind: str, count: int) -> None:
    assert released(kind, {"retry_count": 2}, retry_count=7)[1]["retry_count"] == count


def test_only_a_dead_job_forgets_the_workers_lost_to_it() -> None:
    assert "stall_count" not in released(names.DEAD, {"stall_count": 3})[1]
    assert released(names.RETRIES, {"stall_count": 3})[1]["stall_count"] == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("job", "created_at"),
    [
        ({"created_at": 5, "enqueued_at": 6}, 5),
        ({"enqueued_at": 6}, 6),
        ({"enqueued_at": 1_600_000_000_000}, 1_600_000_000),
        ({"created_at": "soon"}, NOW),
        ({}, NOW),
    ],
)
def test_when_it_was_first_sent_is_kept(kind: str, job: dict[str, Any], created_at: float) -> None:
    _, body = released(kind, job)
    assert (body["created_at"], body["enqueued_at"]) == (created_at, NOW)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queue", ["a/b", "", "ü", "x" * 201, "\ud800", True, [], {"a": 1}, "x" * 100_000])
def test_a_queue_that_cannot_be_is_unroutable(kind: str, queue: Any) -> None:
    found = entry(kind, {"queue": queue})
    refused = release(kind, found, now=NOW)
    assert isinstance(refused, Unreadable)
    assert (refused.error_class, refused.jid, refused.cls, refused.raw) == ("Unroutable", "a1", "A", found.raw)
    assert refused.error_message.encode()
    assert len(refused.error_message) < 1000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queue", [None, "low", "x" * 200])
def test_any_other_queue_is_where_it_goes(kind: str, queue: str | None) -> None:
    assert released(kind, {"queue": queue})[0].queue == (queue or "default")


@pytest.mark.parametrize("kind", KINDS)
def test_properties_survive_and_the_jobs_own_priority_counts_first(kind: str) -> None:
    properties = {"priority": 3, "correlation_id": "c", "headers": {"traceparent": "00-1"}}
    found, _ = released(kind, {}, properties=properties)
    assert (found.priority, found.properties) == (3, properties)
    assert released(kind, {"priority": 0}, properties=properties)[0].priority == 0
    assert released(kind, {})[0].priority is None


def test_a_record_of_raw_bytes_cannot_run() -> None:
    found = reading.pieces(written({"jid": "a1", "died_at": 1, "raw": "{"}))
    assert isinstance(found, list)
    dead = reading.read_dead(found[0], jid="derived")
    assert isinstance(dead, DeadJob)
    refused = release(names.DEAD, dead, now=NOW)
    assert isinstance(refused, Unreadable)
    assert (refused.jid, refused.raw) == ("a1", dead.raw)
