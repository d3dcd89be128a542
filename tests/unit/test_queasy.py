"""Queasy's singletons, line by line of its two documents (the first is normative, the second where that is silent)."""

from __future__ import annotations

import json

import pytest

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Flags, Policy, RunAt, Tracked, Verdict, Word
from amqpjobs.model.tracked_commands import Beat, Bump, Delete, Dispatch, Report, SetQueue, Take, Withdraw
from tests.unit.tracked import NOW, Log


def queasy() -> Log:
    """max_retries 3, max_stalls 3, a heartbeat every 10 s, backoff 5 to 60 s."""
    return Log(retries=2, max_stalls=3, heartbeat_timeout=10.0, min_backoff=5.0, max_backoff=60.0, timeout=0.0)


def test_dispatch_waits_dequeue_makes_active_finish_ends() -> None:
    log = queasy()
    job = log.dispatch(key="k", data=1)
    taken = log.take(worker="w")
    assert (taken.id, taken.state) == (job.id, State.RUNNING)
    log.do(Report(job.id, taken.token, State.COMPLETED))
    assert log.now_of(job).state is State.COMPLETED


def test_a_key_waits_once() -> None:
    log = queasy()
    first = log.dispatch(key="k", data=1)
    assert log.do(Dispatch("q", b"2", "k")).verdict == Verdict(Word.UPDATED, first.id)
    assert log.take().data == b"2"
    assert log.empty()


def test_update_data_false_keeps_the_data() -> None:
    log = queasy()
    log.dispatch(key="k", data=1)
    log.dispatch(key="k", data=2, flags=Flags(data=False))
    assert log.take().data == b"1"


@pytest.mark.parametrize(
    ("rule", "new", "expected"),
    [
        (RunAt.ALWAYS, 50, 50), (RunAt.ALWAYS, 150, 150), (RunAt.NEVER, 50, 100), (RunAt.NEVER, 150, 100),
        (RunAt.IF_LATER, 50, 100), (RunAt.IF_LATER, 150, 150), (RunAt.IF_EARLIER, 50, 50), (RunAt.IF_EARLIER, 150, 100),
    ],
)  # fmt: skip
def test_update_run_at(rule: RunAt, new: float, expected: float) -> None:
    log = queasy()
    job = log.dispatch(key="k", run_at=NOW + 100)
    log.dispatch(key="k", run_at=NOW + new, flags=Flags(run_at=rule))
    assert log.now_of(job).due == NOW + expected
    log.pass_time(expected - 0.1)
    assert log.empty()
    log.pass_time(0.2)
    assert log.take().id == job.id


def test_a_due_job_moved_away_waits_again_until_then() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    log.dispatch(key="k", run_at=NOW + 100)
    assert log.empty()
    log.pass_time(100)
    assert log.take().id == job.id


def fail_once(log: Log, job: Tracked) -> None:
    log.do(Report(job.id, log.take().token, State.FAILED, error="e"))


@pytest.mark.parametrize(("reset", "left"), [(False, 1), (True, 0)])
def test_reset_counts(reset: bool, left: int) -> None:
    log = queasy()
    job = log.dispatch(key="k")
    fail_once(log, job)
    log.dispatch(key="k", flags=Flags(reset_counts=reset))
    assert log.now_of(job).retried == left


def test_update_retry_strategy() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    log.dispatch(key="k", settings={"retries": 9})
    assert log.now_of(job).policy.retries == 2
    log.dispatch(key="k", settings={"retries": 9}, flags=Flags(retry_strategy=True))
    assert log.now_of(job).policy.retries == 9


def test_at_most_one_of_a_key_is_active_and_the_blocked_one_follows_at_its_end() -> None:
    log = queasy()
    first = log.dispatch(key="k", data=1)
    taken = log.take()
    second = log.dispatch(key="k", data=2)
    assert second.id != first.id
    assert log.now_of(second).state is State.BLOCKED
    assert log.empty()
    log.dispatch(key="k", data=3)
    log.do(Report(first.id, taken.token, State.COMPLETED))
    assert log.now_of(second).state is State.QUEUED
    assert log.take().data == b"3"


def test_another_key_and_another_queue_are_not_blocked() -> None:
    log = queasy()
    log.dispatch(key="k")
    log.take()
    assert log.dispatch(key="l").state is State.QUEUED
    assert log.dispatch("other", key="k").state is State.QUEUED


def test_a_blocked_job_keeps_its_time() -> None:
    log = queasy()
    first = log.dispatch(key="k")
    log.take()
    second = log.dispatch(key="k", run_at=NOW + 100)
    log.do(Report(first.id, status=State.COMPLETED))
    assert log.now_of(second).state is State.SCHEDULED
    log.pass_time(100)
    assert log.take().id == second.id


def test_a_retry_backs_off_and_counts() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    for count, delay in ((1, 5.0), (2, 10.0)):
        fail_once(log, job)
        now = log.now_of(job)
        assert (now.state, now.retried, now.due) == (State.RETRYING, count, log.now + delay)
        log.pass_time(delay)
    fail_once(log, job)
    assert log.now_of(job).state is State.FAILED, "max_retries 3: the third failure is final"


def test_a_retry_with_a_blocked_job_applies_its_saved_flags_and_leaves_one_job() -> None:
    log = queasy()
    first = log.dispatch(key="k", data=1)
    taken = log.take()
    second = log.dispatch(key="k", data=2, run_at=NOW + 500)
    log.do(Report(first.id, taken.token, State.FAILED))
    now = log.now_of(first)
    assert (now.state, now.data, now.due, now.retried) == (State.RETRYING, b"2", NOW + 500, 1)
    replaced = log.now_of(second)
    assert replaced.state is State.REPLACED
    assert json.loads(replaced.output) == {"replaced_by": first.id}
    log.pass_time(500)
    assert log.take().id == first.id
    assert log.empty()


def test_saved_flags_that_keep_all_keep_the_retry_as_it_was() -> None:
    log = queasy()
    first = log.dispatch(key="k", data=1)
    taken = log.take()
    log.dispatch(key="k", data=2, flags=Flags(data=False, run_at=RunAt.NEVER))
    log.do(Report(first.id, taken.token, State.FAILED))
    now = log.now_of(first)
    assert (now.data, now.due, now.retried) == (b"1", NOW + 5, 1)


def test_cancel_takes_what_waits_and_not_what_is_active() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    assert log.do(Withdraw("q", "k")).verdict == Verdict(Word.DONE, job.id)
    assert log.empty()
    assert log.do(Withdraw("q", "k")).verdict.word is Word.NOT_FOUND
    other = log.dispatch(key="k")
    log.take()
    assert log.do(Withdraw("q", "k")).verdict == Verdict(Word.CONFLICT, other.id)
    blocked = log.dispatch(key="k")
    assert log.do(Withdraw("q", "k")).verdict == Verdict(Word.DONE, blocked.id)
    assert log.now_of(other).state is State.RUNNING


def test_bump_keeps_all_of_a_client_and_tells_an_evicted_one() -> None:
    log = queasy()
    jobs = [log.dispatch(key=key) for key in "ab"]
    for _ in jobs:
        log.take(worker="w")
    log.pass_time(9)
    assert log.do(Bump("w", "q")).verdict.word is Word.DONE
    log.pass_time(9)
    assert {log.now_of(job).state for job in jobs} == {State.RUNNING}
    log.pass_time(2)
    assert {log.now_of(job).state for job in jobs} == {State.QUEUED}, "both are back, at once"
    assert {log.now_of(job).stalled for job in jobs} == {1}
    assert {log.now_of(job).retried for job in jobs} == {0}, "a stall is no retry"
    assert log.do(Bump("w", "q")).verdict.word is Word.EMPTY


def test_an_evicted_worker_s_result_is_refused() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    lost = log.take(worker="w")
    log.pass_time(10)
    assert log.do(Report(job.id, lost.token, State.COMPLETED)).verdict.word is Word.CONFLICT
    holder = log.take(worker="v")
    assert log.do(Report(job.id, lost.token, State.COMPLETED)).verdict.word is Word.CONFLICT
    assert log.do(Report(job.id, holder.token, State.COMPLETED)).verdict.word is Word.DONE


def test_lost_too_often_is_failed() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    for _ in range(3):
        log.take(worker="w")
        log.pass_time(10)
    assert (log.now_of(job).state, log.now_of(job).stalled) == (State.FAILED, 3)


def test_a_permanent_error_skips_retries_and_the_fail_queue_gets_it() -> None:
    log = queasy()
    log.do(SetQueue("q-fail", Policy()))
    job = log.dispatch(key="k", data={"a": 1})
    taken = log.take()
    log.do(Report(job.id, taken.token, State.FAILED, error="boom", permanent=True))
    assert log.now_of(job).state is State.FAILED
    assert json.loads(log.take("q-fail").data) == ["k", {"a": 1}, "boom"]


def test_without_a_fail_queue_nothing_is_dispatched() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    log.do(Report(job.id, log.take().token, State.FAILED, permanent=True))
    assert log.do(Take("q-fail")).verdict.word is Word.NOT_FOUND


def test_stalled_for_good_goes_to_the_fail_queue_too_and_unblocks() -> None:
    log = Log(max_stalls=1, heartbeat_timeout=10.0)
    log.do(SetQueue("q-fail", Policy()))
    log.dispatch(key="k", data=1)
    log.take()
    blocked = log.dispatch(key="k", data=2)
    log.pass_time(10)
    assert json.loads(log.take("q-fail").data) == ["k", 1, "no heartbeat for 10 s"]
    assert log.now_of(blocked).state is State.QUEUED


@pytest.mark.parametrize("end", ["lost", "deleted", "failed", "cancelled", "timed out"])
def test_run_05_the_key_is_free_however_its_job_ends(end: str) -> None:
    """RUN-05: killed, deleted in the dashboard, dead, retried: the lock never stays."""
    log = Log(max_stalls=1, heartbeat_timeout=10.0, timeout=5.0 if end == "timed out" else 0.0)
    job = log.dispatch(key="k")
    log.take()
    match end:
        case "lost" | "timed out":
            log.pass_time(10)
        case "deleted":
            log.do(Delete(job.id))
        case _:
            log.do(Report(job.id, status=State(end)))
    assert log.dispatch(key="k").state is State.QUEUED
    log.take()


def test_run_05_its_own_retry_runs_and_is_not_blocked_by_itself() -> None:
    """RUN-05: let it retry."""
    log = queasy()
    job = log.dispatch(key="k")
    fail_once(log, job)
    log.pass_time(5)
    assert log.take().id == job.id


def test_due_jobs_of_a_key_that_wait_for_a_worker_still_coalesce() -> None:
    log = queasy()
    for n in range(100):
        log.dispatch(key="k", data=n)
    assert log.take().data == b"99"
    assert log.empty()


def test_a_dequeued_job_has_ten_seconds_from_its_start() -> None:
    log = queasy()
    job = log.dispatch(key="k")
    log.take()
    assert log.now_of(job).wake == NOW + 10
    log.now += 3
    log.do(Beat(job.id))
    assert log.now_of(job).wake == NOW + 13
