"""The fold of `job_events`: one test for each rule of a tracked job's life (Ocypod's, mostly)."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from amqpjobs.model import text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.reading import Piece
from amqpjobs.model.tracked import Policy, Verdict, Word
from amqpjobs.model.tracked_commands import (
    Act,
    Beat,
    Begin,
    Bump,
    Command,
    Delete,
    Dispatch,
    DropQueue,
    GiveBack,
    Report,
    SetQueue,
    Take,
    Withdraw,
)
from amqpjobs.model.tracked_wire import read_command, write_command
from amqpjobs.streams.tracked_jobs import NEVER
from tests.unit.tracked import NOW, Log


def test_a_job_is_taken_once_reported_on_and_kept_for_a_while() -> None:
    log = Log(expires_after=60.0)
    job = log.dispatch(data={"n": 1})
    assert log.now_of(job).state is State.QUEUED
    taken = log.take()
    assert (taken.id, taken.attempt, taken.data) == (job.id, 1, b'{"n":1}')
    assert log.empty()
    log.do(Report(job.id, output=b'{"half":true}', progress=50.0, lines=("one", "two")))
    assert log.now_of(job).progress == 50.0
    assert [line for _, _, line in log.store.lines(job.id)] == ["one", "two"]
    assert log.do(Report(job.id, taken.token, State.COMPLETED, b"[2]")).verdict == Verdict(Word.DONE, job.id)
    ended = log.now_of(job)
    assert (ended.state, ended.output, ended.ended_at) == (State.COMPLETED, b"[2]", NOW)
    log.pass_time(59.9)
    assert log.get(job) is not None
    log.pass_time(0.2)
    assert log.get(job) is None
    assert log.store.lines(job.id) == []


def test_digits_of_data_and_output_stay_as_they_came() -> None:
    log = Log()
    log.message(b'{"type":"command","uuid":"a","at":1,"op":"dispatch","queue":"q","data":{"x":1.10,"y":%d}}' % 2**70)
    assert log.take().data == b'{"x":1.10,"y":%d}' % 2**70


def test_first_come_first_served_within_a_priority() -> None:
    log = Log()
    jobs = [log.dispatch(priority=priority) for priority in (0, 5, -5, 0)]
    assert [log.take().id for _ in jobs] == [jobs[n].id for n in (2, 0, 3, 1)]


def test_a_retry_waits_for_its_delay_and_the_last_delay_repeats() -> None:
    log = Log(retries=3, retry_delays=(10.0, 60.0))
    job = log.dispatch()
    for delay in (10.0, 60.0, 60.0):
        log.take()
        log.do(Report(job.id, status=State.FAILED, error="no"))
        assert log.now_of(job).state is State.RETRYING
        log.pass_time(delay - 0.1)
        assert log.empty()
        log.pass_time(0.2)
    log.take()
    log.do(Report(job.id, status=State.FAILED))
    assert (log.now_of(job).state, log.now_of(job).retried) == (State.FAILED, 3)


def test_backoff_doubles_up_to_its_most() -> None:
    policy = Policy(min_backoff=2.0, max_backoff=10.0)
    assert [policy.delay(n) for n in range(5)] == [2.0, 4.0, 8.0, 10.0, 10.0]
    assert Policy(min_backoff=1.0).delay(1000) == 30 * 86_400.0


def test_a_permanent_failure_is_not_retried_and_a_time_of_its_own_counts() -> None:
    log = Log(retries=5)
    job = log.dispatch()
    log.take()
    log.do(Report(job.id, status=State.FAILED, retry_at=log.now + 100))
    assert log.now_of(job).due == log.now + 100
    log.pass_time(100)
    log.take()
    log.do(Report(job.id, status=State.FAILED, permanent=True))
    assert log.now_of(job).state is State.FAILED


def test_a_running_job_times_out_and_a_silent_one_sooner() -> None:
    log = Log(timeout=100.0, heartbeat_timeout=10.0)
    job = log.dispatch()
    log.take()
    for _ in range(12):
        log.pass_time(8.0)
        log.do(Beat(job.id))
    assert log.now_of(job).state is State.RUNNING
    log.pass_time(4.1)
    assert log.now_of(job).state is State.TIMED_OUT
    assert log.now_of(job).error == "timed out after 100 s"
    other = log.dispatch()
    log.take()
    log.pass_time(10.0)
    assert (log.now_of(other).state, log.now_of(other).error) == (State.TIMED_OUT, "no heartbeat for 10 s")


def test_a_heartbeat_that_lands_before_the_tick_keeps_the_job() -> None:
    log = Log(heartbeat_timeout=10.0)
    job = log.dispatch()
    log.take()
    log.now += 11
    log.do(Beat(job.id))
    log.tick(job.id)
    assert log.now_of(job).state is State.RUNNING


def test_zero_switches_timeouts_and_expiry_off() -> None:
    log = Log(timeout=0.0, heartbeat_timeout=0.0, expires_after=0.0)
    job = log.dispatch()
    log.take()
    assert log.store.next_wake() == NEVER
    log.do(Report(job.id, status=State.COMPLETED))
    assert log.store.next_wake() == NEVER


def test_api_01_a_former_holder_is_refused_and_changes_nothing() -> None:
    """API-01: A takes a job, which times out; B takes it; A reports, too late."""
    log = Log(timeout=2.0, retries=1, heartbeat_timeout=50.0)
    job = log.dispatch()
    a = log.take()
    log.pass_time(2.0)
    b = log.take()
    assert a.token != b.token
    before = log.now_of(job)
    for act in (
        Report(job.id, a.token, State.COMPLETED, b'"late"'), Report(job.id, a.token, output=b"1", lines=("x",)),
        Beat(job.id, a.token),
    ):  # fmt: skip
        assert log.do(act).verdict == Verdict(Word.CONFLICT, job.id)
    assert log.now_of(job) == before
    assert log.store.lines(job.id) == []
    assert log.do(Beat(job.id, b.token)).verdict.word is Word.DONE
    assert log.do(Report(job.id, b.token, State.COMPLETED)).verdict.word is Word.DONE


@pytest.mark.parametrize("state", ["queued", "scheduled", "completed", "cancelled"])
def test_what_does_not_run_takes_no_report(state: str) -> None:
    log = Log()
    job = log.dispatch(run_at=NOW + 100 if state == "scheduled" else None)
    if state in ("completed", "cancelled"):
        log.take()
        log.do(Report(job.id, status=State(state)))
    before = log.now_of(job)
    for act in (Beat(job.id), Report(job.id, output=b"1"), Report(job.id, status=State.COMPLETED, output=b"1")):
        assert log.do(act).verdict.word is Word.CONFLICT
    assert log.now_of(job) == before


def test_what_waits_or_runs_can_be_cancelled_and_what_has_ended_cannot() -> None:
    log = Log(retries=1, retry_delays=(50.0,))
    for prepare in ("waits", "runs", "retries"):
        job = log.dispatch()
        if prepare != "waits":
            log.take()
        if prepare == "retries":
            log.do(Report(job.id, status=State.FAILED))
        assert log.do(Report(job.id, status=State.CANCELLED)).verdict.word is Word.DONE
        assert log.do(Report(job.id, status=State.CANCELLED)).verdict.word is Word.CONFLICT
    assert log.empty()


def test_deleting_a_queue_takes_what_waits_and_lets_the_rest_end() -> None:
    log = Log(retries=3, retry_delays=(50.0,))
    running, retrying, waiting = log.dispatch(), log.dispatch(), log.dispatch()
    log.take()
    log.take()
    log.do(Report(retrying.id, status=State.FAILED))
    assert log.do(DropQueue("q")).verdict.word is Word.DONE
    assert log.get(waiting) is None
    assert log.now_of(retrying).state is State.FAILED
    log.do(Report(running.id, status=State.FAILED))
    assert log.now_of(running).state is State.FAILED, "it cannot run again"
    assert log.do(DropQueue("q")).verdict.word is Word.NOT_FOUND
    assert log.do(Take("q")).verdict.word is Word.NOT_FOUND
    log.pass_time(301)
    assert log.get(running) is None


def test_a_queue_is_made_by_its_first_job_unless_it_must_exist() -> None:
    log = Log()
    assert log.do(Dispatch("new", existing=True)).verdict.word is Word.NOT_FOUND
    assert log.do(Dispatch("new")).verdict.word is Word.CREATED
    assert log.do(SetQueue("new", Policy())).verdict.word is Word.UPDATED


def test_a_command_is_judged_once() -> None:
    log = Log()
    first = log.do(Dispatch("q"), uuid="same")
    again = log.do(Dispatch("q"), uuid="same")
    assert again.verdict == first.verdict
    taken = log.do(Take("q"), uuid="token")
    assert log.do(Take("q"), uuid="token").verdict == taken.verdict
    assert log.empty(), "a repeated take takes nothing more"
    log.now += 2 * 86_400
    log.do(Take("q"))
    assert log.store.verdict("same") is None


def test_a_repeated_message_has_no_effect() -> None:
    log = Log()
    entry = {"type": "command", "uuid": "a", "at": NOW, "op": "dispatch", "queue": "q", "from": "f", "seq": 1}
    assert len(log.message(json.dumps(entry).encode())) == 1
    assert log.message(json.dumps(entry | {"uuid": "b"}).encode()) == []


def test_only_the_current_leader_tells_the_time() -> None:
    log = Log()
    job = log.dispatch(run_at=NOW + 1)
    log.now += 2
    log.tick(job.id, source="stranger")
    log.tick(job.id, n=2)
    log.entry({"type": "tick", "epoch": "e", "n": 1, "at": log.now, "job": job.id})
    assert log.now_of(job).state is State.SCHEDULED
    log.tick(job.id)
    assert log.now_of(job).state is State.QUEUED


def test_numbers_come_from_the_place_in_the_log() -> None:
    log = Log()
    one = {"type": "command", "at": NOW, "op": "dispatch", "queue": "q"}
    judged = log.message(json.dumps([one | {"uuid": f"x{n}"} for n in range(3)]).encode())
    assert [each.verdict.job for each in judged] == [(log.offset << 14) + n for n in range(3)]


def odd_entries() -> list[Any]:
    ok = {"type": "command", "uuid": "u", "at": NOW}
    return [
        None, 7, "x", [], {}, {"type": "command"}, {"type": "tick"}, {"type": "epoch"}, {"type": "term", "n": "x"},
        ok, ok | {"op": "none"}, ok | {"op": "dispatch"}, ok | {"op": "dispatch", "queue": "a/b"},
        ok | {"op": "dispatch", "queue": "q", "settings": {"timeout": -1}},
        ok | {"op": "dispatch", "queue": "q", "settings": {"timeout": 1e300}},
        ok | {"op": "dispatch", "queue": "q", "settings": {"none": 1}},
        ok | {"op": "dispatch", "queue": "q", "priority": 2**80},
        ok | {"op": "dispatch", "queue": "q", "update_run_at": "sometimes"},
        ok | {"op": "dispatch", "queue": "q", "key": "\ud800"}, ok | {"op": "take"},
        ok | {"op": "report", "job": -1}, ok | {"op": "report", "job": 1, "status": "timed_out"},
        ok | {"op": "beat", "job": True}, ok | {"op": "queue", "queue": "q", "settings": {"retries": 10**6}},
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(odd_entries())))
def test_odd_entries_change_nothing(number: int) -> None:
    log = Log()
    log.message(json.dumps(odd_entries()[number]).encode())
    assert log.store.counts() == {}
    assert log.store.queue("q") == Policy()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000])
def test_what_is_no_json_changes_nothing(body: bytes) -> None:
    assert Log().message(body) == []


ACTS: list[Act] = [
    SetQueue("q", Policy(1.5, 2.5, 3.5, 4, (1.0, 2.0), 0.5, 9.0, 3)),
    DropQueue("q"),
    Dispatch("q", b'{"x":1.10}', "k", "T", -5, ("a", "b"), 7.5, {"timeout": 3.0}, existing=True),
    Dispatch("q", b"[1]", type="T", jid="j", amqp=True), Begin(Dispatch("q", type="T", jid="j", amqp=True), "w"),
    Take("q", "T", "w"), Take(None, "T"), Take(job=7), GiveBack(7, "t", 9.5), GiveBack(7),
    Beat(7, "t"), Bump("w", "q"), Withdraw("q", "k"), Delete(7),
    Report(7, "t", State.FAILED, b"[1.10]", "e", True, 9.5, 50.0, ("l",)), Report(7),
]  # fmt: skip


@pytest.mark.parametrize("act", ACTS, ids=lambda act: type(act).__name__)
def test_what_is_written_is_read_again(act: Act) -> None:
    command = Command("u", NOW, act, "me")
    raw = write_command(command)
    assert read_command(Piece(0, raw, text.parse(raw))) == command


ODD = [
    "",
    "x",
    "\ud800",
    -1,
    0,
    1,
    True,
    1.5,
    1e308,
    2**70,
    math.inf,
    math.nan,
    None,
    [],
    [1],
    [[1, "x"]],
    {},
    {"a": 1},
]
MEMBERS = {
    "command": (
        "uuid at op by queue data class key priority tags run_at settings update_data update_run_at reset_counts "
        "update_retry_strategy existing jid amqp worker job token status output error permanent retry_at progress lines"
    ),
    "tick": "epoch n at job",
    "offered": "epoch n jobs",
    "page": "restore of job queue settings sources verdicts",
    "epoch": "epoch base",
    "term": "epoch n by",
    "sealed": "at",
    "pages_end": "at of",
}
OPS = ["queue", "drop_queue", "dispatch", "take", "begin", "beat", "bump", "report", "give_back", "withdraw", "delete"]


@pytest.mark.parametrize("op", [*OPS, *(kind for kind in MEMBERS if kind != "command")])
def test_no_entry_stops_the_fold(op: str) -> None:
    """What no fold can read would stop every reader for ever: the stream is read again after each restart."""
    kind = "command" if op in OPS else op
    log = Log()
    job = log.dispatch()
    whole = {"type": kind, "op": op, "at": NOW, "queue": "q", "class": "C", "worker": "w", "key": "k", "job": job.id}
    whole |= {"epoch": "e", "n": 1, "jobs": [[job.id, job.place]], "restore": True, "of": "x"}
    for number, member in enumerate(MEMBERS[kind].split()):
        for other, odd in enumerate(ODD):
            entry = whole | {"uuid": f"{number}.{other}", member: odd}
            log.entry(entry, source="leader" if kind != "command" else None)
            log.store.flush()
    log.dispatch()
