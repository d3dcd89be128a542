"""What a failure becomes (RET-01, RET-02, RET-04) and that not one byte of the job changes on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import names, outcomes, reading, release, text
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, Unreadable
from amqpjobs.model.outcomes import Failure, Outcome
from tests.unit.odd import ANY_TEXT, VALUES, same, written

FAILURE = Failure("ValueError", "no such thing", "line 1\nline 2\nline 3")
NO_LIMIT_DIGITS = b'"one":1.10,"big":1180591620717411303424,"small":1e-7,"zero":-0.0,"inf":Infinity,"nul":null'


def a_job(raw: bytes, queue: str = "default") -> Job:
    found = reading.read_job(raw, queue=queue, jid="derived")
    assert isinstance(found, Job), found
    return found


def fail(
    job: Job, failure: Failure = FAILURE, *, now: float = 1000.0, fit: int = outcomes.FIT, **properties: Any
) -> Outcome:
    return outcomes.failed(job, failure, now=now, jitter=0.5, worker="host:1:test", properties=properties, fit=fit)


def read_back(outcome: Outcome) -> RetryEntry | DeadJob:
    assert outcome.entry is not None
    found = reading.pieces(outcome.entry)
    assert isinstance(found, list)
    (piece,) = found
    reader = reading.read_retry if outcome.stream == names.RETRIES else reading.read_dead
    entry = reader(piece, jid="from the stream")
    assert not isinstance(entry, Unreadable), entry
    return entry


def life(raw: bytes) -> tuple[int, Outcome]:
    """How many runs a job has that always fails, and its end."""
    runs = 0
    while True:
        runs += 1
        outcome = fail(a_job(raw))
        if outcome.what != "retry":
            return runs, outcome
        released = release.release(names.RETRIES, read_back(outcome), now=1.0)
        assert isinstance(released, release.Release)
        raw = released.body


@pytest.mark.parametrize(
    ("retry", "runs"),
    [("false", 1), ("0", 1), ("1", 2), ('"5"', 6), ("2.7", 3), ("-1", 1), ("null", 26), ("true", 26), ('"x"', 26)],
)
def test_n_retries_are_n_plus_one_runs_and_then_dead(retry: str, runs: int) -> None:
    raw = b'{"jid":"a","class":"A","retry":%s}' % retry.encode()
    assert life(raw)[0] == runs
    assert life(raw)[1].what == "dead"
    assert life(raw[:-1] + b',"dead":false}') == (runs, Outcome(None, None, "discarded"))


def test_without_a_retry_there_are_25() -> None:
    assert life(b'{"jid":"a","class":"A"}')[0] == 26


@pytest.mark.parametrize("count", ["1000000", "1" + "0" * 30, '"3"', "-5", "1e999", "NaN"])
@pytest.mark.parametrize("retry", ["1000000000", "25", "0"])
def test_any_count_is_in_retries_or_dead_and_its_delay_capped(count: str, retry: str) -> None:
    outcome = fail(a_job(b'{"class":"A","retry":%s,"retry_count":%s}' % (retry.encode(), count.encode())))
    entry = read_back(outcome)
    if isinstance(entry, RetryEntry):
        assert 15 <= entry.due - 1000.0 <= 30 * 86400
        assert 1 <= entry.retry_count <= 1000
    assert outcome.what == ("dead" if retry == "0" or int(float(json.loads(count)) >= 1000) else "retry")


def test_a_final_failure_and_a_wait_of_the_handlers_own() -> None:
    job = a_job(b'{"class":"A","retry":5}')
    assert fail(job, Failure("E", "m", "", final=True)).what == "dead"
    for asked, waits in ((7.5, 7.5), (-1.0, 0.0), (1e99, 30 * 86400.0), (float("nan"), 0.0)):
        entry = read_back(fail(job, Failure("E", "m", "", retry_in=asked)))
        assert isinstance(entry, RetryEntry)
        assert entry.due == 1000.0 + waits


def test_the_entries_say_what_happened() -> None:
    retry = read_back(fail(a_job(b'{"jid":"a","class":"A","retry_count":2}'), correlation_id="c"))
    assert isinstance(retry, RetryEntry)
    assert (retry.jid, retry.due, retry.retry_count, retry.attempt) == ("a", 1000.0 + 16 + 15 + 45, 3, 3)
    dead = read_back(fail(a_job(b'{"jid":"a","class":"A","retry":2,"retry_count":2}'), correlation_id="c"))
    assert isinstance(dead, DeadJob)
    assert (dead.jid, dead.died_at, dead.retry_count) == ("a", 1000.0, 2)
    for entry in (retry, dead):
        assert (entry.error_class, entry.error_message) == ("ValueError", "no such thing")
        assert (entry.failed_at, entry.worker_identity) == (1000.0, "host:1:test")
        assert entry.backtrace == FAILURE.backtrace
        assert entry.properties == {"correlation_id": "c"}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [("true", 3), ("null", 3), ("false", 0), ("0", 0), ("2", 2), ("99", 3), ("-3", 0)],
)
def test_a_job_says_how_much_of_a_backtrace_it_wants(asked: str, kept: int) -> None:
    entry = read_back(fail(a_job(b'{"class":"A","backtrace":%s}' % asked.encode())))
    assert entry.backtrace == "\n".join(FAILURE.backtrace.splitlines()[3 - kept :])


@pytest.mark.parametrize("raw", [b'{"class":"A"}', b'{"class":"A","queue":"a/b","jid":null}', b'{"class":"A","jid":5}'])
def test_a_job_that_names_no_queue_goes_back_to_where_it_came_from(raw: bytes) -> None:
    job = a_job(raw, queue="low")
    entry = read_back(fail(job))
    assert entry.job is not None
    assert (entry.job.queue, entry.jid, entry.job.jid) == ("low", job.jid, job.jid)
    assert entry.job.complete


def test_thirty_rounds_neither_grow_nor_nest_nor_change_a_digit() -> None:
    raw = b'{"jid":"a","class":"A","args":["%s",{%s}],"retry":30,"own":{%s},"x":1}' % (
        b"x" * 1000,
        NO_LIMIT_DIGITS,
        NO_LIMIT_DIGITS,
    )
    before = dict(text.members(raw))
    sizes = []
    for count in range(1, 31):
        outcome = fail(a_job(raw), now=1_700_000_000.25)
        entry = read_back(outcome)
        assert isinstance(entry, RetryEntry)
        assert entry.retry_count == count
        assert b'"job"' not in entry.job_raw
        released = release.release(names.RETRIES, entry, now=1_700_000_100.5)
        assert isinstance(released, release.Release)
        raw = released.body
        after = dict(text.members(raw))
        assert {name: after[name] for name in ("args", "own", "x", "class")} == {
            name: before[name] for name in ("args", "own", "x", "class")
        }
        sizes.append((len(outcome.entry or b""), len(raw)))
    for column in zip(*sizes, strict=True):
        assert max(column) <= 1.1 * min(column)
    assert fail(a_job(raw)).what == "dead"


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=4), VALUES.filter(lambda value: isinstance(value, (list, dict))))
def test_whatever_a_job_carries_survives_failure_and_release(extra: dict[str, Any], args: Any) -> None:
    raw = written({**extra, "class": "A", "args": args, "queue": "default", "jid": "a", "retry": 3})
    entry = read_back(fail(a_job(raw)))
    assert isinstance(entry, RetryEntry)
    released = release.release(names.RETRIES, entry, now=5.0)
    assert isinstance(released, release.Release)
    before, after = dict(text.members(raw)), dict(text.members(released.body))
    set_anew = {"jid", "queue", "retry_count", "enqueued_at", "created_at"}
    assert {k: v for k, v in after.items() if k not in set_anew} == {
        k: v for k, v in before.items() if k not in set_anew
    }
    assert same(a_job(released.body).args, args)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_error_can_be_written_down(error_class: str, message: str, backtrace: str) -> None:
    entry = read_back(fail(a_job(b'{"class":"A"}'), Failure(error_class, message, backtrace)))
    assert (entry.error_class, entry.error_message) == (text.safe(error_class), text.safe(message))


@pytest.mark.parametrize("sign", ["x", "é", "\x00", "\U0001f600", '"'])
@pytest.mark.parametrize(("message", "backtrace"), [(10, 150_000), (110_000, 110_000), (150_000, 0)])
def test_an_entry_is_cut_to_fit_with_a_marker(sign: str, message: int, backtrace: int) -> None:
    failure = Failure("E", sign * message, sign * backtrace)
    outcome = fail(a_job(b'{"class":"A","args":["kept"]}'), failure, fit=100_000)
    assert outcome.entry is not None
    assert 90_000 < len(outcome.entry) <= 100_000
    entry = read_back(outcome)
    assert entry.error_message.endswith(outcomes.CUT) == (message > 100_000)
    assert (entry.backtrace or "").endswith(outcomes.CUT) == (backtrace > 0)
    assert b'"kept"' in (entry.job_raw or b"")


def test_what_fits_is_what_a_broker_takes() -> None:
    outcome = fail(a_job(b'{"class":"A"}'), Failure("E", "m", "line\n" * 5_000_000))
    assert 0.9 * outcomes.FIT < len(outcome.entry or b"") <= outcomes.FIT < 16 * 1024 * 1024 - 512 * 1024


def test_a_job_too_large_for_its_record_still_comes_out_whole() -> None:
    huge = b'{"class":"A","args":["%s"]}' % (b"x" * outcomes.FIT)
    entry = read_back(fail(a_job(huge), Failure("E", "m" * 100, "b" * 100)))
    assert len(entry.raw) > outcomes.FIT
    assert entry.job is not None
    assert entry.job.args == ["x" * outcomes.FIT]


@given(st.one_of(st.binary(), ANY_TEXT.map(lambda words: text.safe(words).encode())), st.none() | ANY_TEXT)
def test_what_could_not_be_read_is_kept_to_the_byte(raw: bytes, queue: str | None) -> None:
    bad = Unreadable("Malformed", "why \ud800", raw, None, queue if queue is None else text.safe(queue), "A")
    record = outcomes.unreadable(bad, now=9.0, jid="x\ud800", queue="came-from", worker="w")
    found = reading.pieces(record)
    assert isinstance(found, list)
    dead = reading.read_dead(found[0], jid="y")
    assert isinstance(dead, DeadJob)
    assert dead.original == raw
    assert (dead.jid, dead.queue, dead.died_at) == ("x\\ud800", bad.queue or "came-from", 9.0)
    assert dead.error_message == "why \\ud800"


def test_control_characters_do_not_make_a_record_six_times_as_long() -> None:
    record = outcomes.unreadable(Unreadable("M", "m", b"\x00" * 100_000), now=9.0, jid="x", queue=None, worker="w")
    assert len(record) < 140_000


def test_a_metric_reads_back() -> None:
    job = a_job(b'{"jid":"a","class":"A","queue":"low","enqueued_at":99.5,"retry_count":2}')
    entry = outcomes.metric(
        job, status="failed", started_at=100.0, duration_ms=250.0, worker="w", error_class="E", code_version="1"
    )
    metric = reading.read_metric(text.parse(text.dump(entry)))
    assert not isinstance(metric, Unreadable)
    assert (metric.timestamp, metric.duration_ms, metric.wait_ms, metric.attempt) == (100.25, 250.0, 500.0, 3)
    assert (metric.jid, metric.job_class, metric.queue, metric.status) == ("a", "A", "low", "failed")
    assert (metric.worker_identity, metric.error_class, metric.code_version) == ("w", "E", "1")


def test_clocks_that_differ_make_no_wait_below_zero() -> None:
    job = a_job(b'{"class":"A","enqueued_at":500}')
    assert outcomes.metric(job, status="success", started_at=100.0, duration_ms=1.0, worker="w")["wait_ms"] == 0.0
