"""Entries too large for a message: sent as their job with headers, and read as the entry that they are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import control, copies, names, outcomes, reading, release, text, unwrapped
from amqpjobs.model.arrival import read_one, read_pending
from amqpjobs.model.burial import burial
from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.outcomes import Failure
from amqpjobs.model.pending import Pending
from amqpjobs.model.protocol import Again
from tests.unit.odd import ANY_TEXT, JOBS, SCALARS, written

RAW = b'{"jid":"j","class":"C","args":[1.10,%d,"\xc3\xa9"],"queue":"low","mine":{"x":1e-7}}' % 2**70


def a_job(raw: bytes = RAW, queue: str = "low") -> Job:
    job = reading.read_job(raw, queue=queue, jid="derived")
    assert isinstance(job, Job)
    return job


def entry_of(job: Job, *, final: bool = False, **properties: Any) -> bytes:
    failure = Failure("E", "message", "line 1\nline 2", final=final)
    made = outcomes.failed(job, failure, now=1000.25, jitter=0.5, worker="h:1:t", properties=properties)
    assert made.entry is not None
    return made.entry


def sent(entry: bytes) -> unwrapped.Unwrapped:
    """What goes over the wire; every header is a scalar that AMQP carries, and all of them fit one frame."""
    found = unwrapped.split(entry)
    assert found is not None
    for value in found.headers.values():
        assert (
            isinstance(value, (str, bool))
            or (isinstance(value, float) and math.isfinite(value))
            or (isinstance(value, int) and -(2**63) <= value < 2**63)
        )
    assert sum(len(str(value).encode()) + len(name) for name, value in found.headers.items()) < 100_000
    return found


def there_and_back(entry: bytes) -> bytes:
    found = sent(entry)
    return unwrapped.joined(found.body, found.headers)


PROPERTIES: dict[str, Any] = {"priority": 7, "correlation_id": "c", "headers": {"traceparent": "00-1"}}


@pytest.mark.parametrize(("final", "stream"), [(False, names.RETRIES), (True, names.DEAD)])
def test_a_failure_comes_back_as_the_entry_that_it_is(final: bool, stream: str) -> None:
    entry = entry_of(a_job(), final=final, **PROPERTIES)
    assert sent(entry).body == RAW
    before, after = read_one(stream, entry, jid="x"), read_one(stream, there_and_back(entry), jid="x")
    assert isinstance(after, (RetryEntry, DeadJob))
    assert after.job_raw == RAW
    assert after.properties == PROPERTIES
    assert after.model_dump() == before.model_dump()  # type: ignore[union-attr]


def test_a_scheduled_job_comes_back_too() -> None:
    entry = {"type": "scheduled_job", "jid": "other", "scheduled_at": 5.5, "reschedule": True}
    after = read_one(names.SCHEDULED, there_and_back(text.dump(entry | {"job": text.Verbatim(RAW)})), jid="x")
    assert isinstance(after, ScheduledJob)
    assert (after.jid, after.due, after.reschedule, after.job_raw) == ("other", 5.5, True, RAW)


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00{", b"[1,2]", b'{"class":7}', b"", b'"text"', b'{"a":1}'])
def test_bytes_that_are_no_job_are_kept_to_the_byte(raw: bytes) -> None:
    bad = Unreadable("Malformed", "why", raw, None, "low", None)
    entry = outcomes.unreadable(bad, now=1.5, jid="made", queue="low", worker="h:1:t")
    assert sent(entry).body == raw
    after = read_one(names.DEAD, there_and_back(entry), jid="x")
    assert isinstance(after, DeadJob)
    assert after.original == raw
    assert (after.jid, after.error_class, after.died_at) == ("made", "Malformed", 1.5)


@given(JOBS, st.booleans(), ANY_TEXT, ANY_TEXT)
def test_any_job_survives(value: dict[str, Any], final: bool, error_class: str, message: str) -> None:
    job = reading.read_job(written(value), queue="low", jid="derived")
    if isinstance(job, Unreadable):
        return
    failure = Failure(error_class, message, "b" * 10_000, final=final)
    entry = outcomes.failed(job, failure, now=5.0, jitter=0.1, worker="h", properties={}).entry
    if entry is None:
        return
    stream = names.DEAD if final or job.retry_count >= job.retry else names.RETRIES
    before, after = read_one(stream, entry, jid="x"), read_one(stream, there_and_back(entry), jid="x")
    assert isinstance(before, (RetryEntry, DeadJob))
    assert isinstance(after, (RetryEntry, DeadJob))
    assert after.job_raw == before.job_raw
    assert (after.jid, after.failed_at, after.retry_count) == (before.jid, before.failed_at, before.retry_count)
    assert (after.error_class, after.error_message) == (before.error_class, before.error_message)
    if before.backtrace:
        assert (after.backtrace or "").startswith("b" * unwrapped.LONGEST)
        assert (after.backtrace or "").endswith(outcomes.CUT)
    else:  # the job wants none kept
        assert not after.backtrace


HEADERS = st.dictionaries(
    st.sampled_from(
        [f"amqpjobs-{name}" for name in ("type", "jid", "retry-at", "job", "raw", "fault", "entry", "id", "properties")]
        + ["amqpjobs-", "x-jid", "amqpjobs-from", "amqpjobs-seq", "amqpjobs-queue", "amqpjobs-\ud800"]
    ),
    st.one_of(SCALARS, st.sampled_from(["again", "retry", "dead_job", "{", '{"amqpjobs-type":"retry"}', "[1]", "1"])),
)


@given(st.sampled_from(names.DELAYED), st.one_of(st.binary(max_size=40), JOBS.map(written)), HEADERS)
def test_no_message_raises_whatever_its_headers_say(stream: str, body: bytes, headers: dict[str, Any]) -> None:
    store = MemoryStore()
    DelayedSet(stream, store).fold(0, body, headers)
    for entry in store.entries().values():
        read_pending(stream, entry)


@pytest.mark.parametrize("outline", ["1", "1.5", "true", '"x"', "[1]", "{", "{}", "null"])
def test_the_outline_of_an_entry_may_be_anything(outline: str) -> None:
    headers = {"amqpjobs-type": "again", "amqpjobs-entry": outline}
    assert json.loads(unwrapped.joined(RAW, headers))["type"] == "again"
    DelayedSet(names.RETRIES, MemoryStore()).fold(0, RAW, headers)


@given(st.binary(max_size=60))
def test_what_is_no_entry_is_not_taken_apart(raw: bytes) -> None:
    found = unwrapped.split(raw)
    assert found is None or isinstance(found.body, bytes)
    assert unwrapped.joined(raw, {"x-jid": "a"}) == raw


def folded(stream: str, *messages: unwrapped.Unwrapped | bytes, first: int = 0) -> list[Pending]:
    store = MemoryStore()
    fold = DelayedSet(stream, store)
    for offset, message in enumerate(messages, first):
        if isinstance(message, bytes):
            fold.fold(offset, message)
        else:
            fold.fold(offset, message.body, message.headers)
    return list(store.entries().values())


def test_the_fold_takes_it_as_the_entry_and_it_runs_again() -> None:
    message = sent(entry_of(a_job(), **PROPERTIES))
    [waiting] = folded(names.RETRIES, message)
    assert (waiting.id, waiting.jid, waiting.due, waiting.summary.retry_count) == ("0", "j", waiting.due, 1)
    assert waiting.due is not None
    assert waiting.due > 1000
    read = read_pending(names.RETRIES, waiting)
    assert isinstance(read, RetryEntry)
    out = release.release(names.RETRIES, read, now=2000.0)
    assert isinstance(out, release.Release)
    assert (out.queue, out.priority, out.properties) == ("low", 7, PROPERTIES)
    assert b'"args":[1.10,%d,"\xc3\xa9"]' % 2**70 in out.body
    assert json.loads(out.body)["retry_count"] == 1


def test_a_repeat_of_it_counts_once() -> None:
    stamp: dict[str, unwrapped.Scalar] = {"amqpjobs-from": "w", "amqpjobs-seq": 1}
    entry = {"type": "scheduled_job", "jid": "j", "scheduled_at": 5.0, "job": {"class": "C"}}
    message = sent(text.dump(entry))
    stamped = unwrapped.Unwrapped(message.body, message.headers | stamp)
    assert len(folded(names.SCHEDULED, stamped, stamped)) == 1
    assert len(folded(names.SCHEDULED, message, message)) == 2


@pytest.mark.parametrize("at", [5, 5.0, "5", "5.0", "5e0", "1970-01-01T00:00:05Z"])
def test_a_job_without_a_queue_goes_back_to_where_the_header_says(at: Any) -> None:
    headers = {"amqpjobs-type": "retry", "amqpjobs-jid": "n", "amqpjobs-retry-at": at, "amqpjobs-queue": "low"}
    found = read_one(names.RETRIES, unwrapped.joined(b'{"class":"C"}', headers), jid="x")
    assert isinstance(found, RetryEntry)
    assert (found.jid, found.job.queue, found.due, found.retry_count) == ("n", "low", 5.0, 1)


@pytest.mark.parametrize("kind", ["retry", "raw", "not even an entry"])
def test_an_earlier_lifes_entry_is_brought_over_in_the_same_way(kind: str) -> None:
    bad = Unreadable("Malformed", "why", b"\xff" * 50, None, "low", None)
    raw = {
        "retry": entry_of(a_job()),
        "raw": outcomes.unreadable(bad, now=1.5, jid="made", queue="low", worker="h:1:t"),
        "not even an entry": b"\xffgarbage",
    }[kind]
    stream = names.RETRIES if kind == "retry" else names.DEAD
    [before] = folded(stream, raw)
    again = Again("E/3", before.jid, before.due, before.bury, ("Killed", "by ann"), before.raw)
    message = sent(text.dump(control.write_again(again)))
    [after] = folded(stream, message, first=7)
    assert (after.id, after.jid, after.due, after.fault) == ("E/3", before.jid, before.due, ("Killed", "by ann"))
    assert after.summary._replace(error_message="") == before.summary._replace(error_message="")
    one, other = read_pending(stream, before), read_pending(stream, after)
    if isinstance(one, Unreadable):
        assert isinstance(other, Unreadable)
        assert other.raw == one.raw
    else:
        assert other.model_dump() == one.model_dump()  # type: ignore[union-attr]


def test_a_copy_that_no_message_can_hold_is_carried_in_the_same_way() -> None:
    [before] = folded(names.RETRIES, entry_of(a_job()))
    message = sent(text.dump(control.write_carry(copies.carry(names.RETRIES, before)) | {"from": "c", "seq": 1}))
    [after] = folded(names.RETRIES, message, first=900)  # a reader that has no other trace of it
    assert (after.id, after.jid, after.due, after.key) == (before.id, before.jid, before.due, before.key)
    assert (after.pos.offset, after.rev.offset) == (900, 900)
    assert after.summary._replace(error_message="") == before.summary._replace(error_message="")


def test_a_burial_is_taken_apart_as_well() -> None:
    read = read_one(names.RETRIES, entry_of(a_job()), jid="x")
    record = burial(read, jid="j", fault=("TooLarge", "why"), origin="retries/3", now=9.0, worker="h")
    after = read_one(names.DEAD, there_and_back(record), jid="x")
    assert isinstance(after, DeadJob)
    assert (after.job_raw, after.origin, after.error_class) == (RAW, "retries/3", "TooLarge")
