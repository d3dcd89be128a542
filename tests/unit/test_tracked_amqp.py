"""Tracked jobs of AMQP workers, in the fold: begun, offered, given back; and what is written and read of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amqpjobs.model import reading, tracked_pages
from amqpjobs.model.lifecycle import State
from amqpjobs.model.messages import Job
from amqpjobs.model.reading import Piece
from amqpjobs.model.tracked import Tracked, Word
from amqpjobs.model.tracked_commands import Begin, Dispatch, DropQueue, GiveBack, Report, Take
from amqpjobs.model.tracked_ticket import arguments, asked, offer
from amqpjobs.model.tracked_verdicts import read_verdict, write_verdict
from tests.unit.tracked import NOW, Log

HERE = Dispatch("q", b"[1]", type="T", jid="j", amqp=True)


def offered(log: Log, job: Tracked, source: str = "leader", **wrong: Any) -> None:
    entry = {"type": "offered", "epoch": "e", "n": 1, "jobs": [[job.id, job.place]]} | wrong
    log.entry(entry, source)


def to_offer(log: Log) -> list[int]:
    return [job.id for job in log.store.to_offer(10)]


def job_of(**members: Any) -> Job:
    found = reading.read_job(json.dumps({"class": "T", "jid": "j"} | members).encode(), queue="q", jid="")
    assert isinstance(found, Job)
    return found


def test_a_delivered_job_is_begun_once() -> None:
    log = Log()
    first = log.do(Begin(HERE, "w"), "one")
    assert first.job is not None
    assert (first.verdict.word, first.job.state, first.job.token, first.job.worker) == (
        Word.DONE, State.RUNNING, "one", "w",
    )  # fmt: skip
    assert log.do(Begin(HERE, "v"), "two").verdict == (Word.CONFLICT, first.job.id)
    log.do(Report(first.job.id, "one", State.COMPLETED))
    assert log.do(Begin(HERE, "v"), "three").verdict.word is Word.CONFLICT
    log.pass_time(1000)  # it expires
    assert log.do(Begin(HERE, "v"), "four").verdict == (Word.NOT_FOUND, None)


def test_what_is_dispatched_and_then_delivered_is_one_job() -> None:
    log = Log()
    job = log.do(HERE).job
    begun = log.do(Begin(HERE)).job
    assert job is not None
    assert begun is not None
    assert begun.id == job.id


def test_a_job_is_offered_once_for_each_time_that_it_is_queued() -> None:
    log = Log(retries=1)
    job = log.do(HERE).job
    assert job is not None
    assert to_offer(log) == [job.id]
    for wrong in ({"n": 2}, {"epoch": "f"}, {"jobs": [[job.id, job.place + 1]]}, {"jobs": "all"}, {"jobs": [[1]]}):
        offered(log, job, **wrong)
    offered(log, job, source="stranger")
    assert to_offer(log) == [job.id]
    offered(log, job)
    assert to_offer(log) == []
    taken = log.do(Take(job=job.id)).job
    assert taken is not None
    log.do(Report(job.id, taken.token, State.FAILED))
    log.pass_time()
    assert to_offer(log) == [job.id]
    log.do(Take(job=job.id))
    assert to_offer(log) == []
    assert log.do(Take(job=job.id)).verdict.word is Word.CONFLICT
    assert log.do(Take(job=7)).verdict.word is Word.NOT_FOUND


@pytest.mark.parametrize(("delay", "state"), [(None, State.QUEUED), (60.0, State.RETRYING)])
def test_what_is_given_back_runs_again_and_no_try_is_counted(delay: float | None, state: State) -> None:
    log = Log(retries=0)
    job = log.dispatch()
    taken = log.take()
    act = GiveBack(job.id, taken.token, None if delay is None else log.now + delay)
    assert log.do(GiveBack(job.id, "other")).verdict.word is Word.CONFLICT
    assert log.do(act).verdict.word is Word.DONE
    now = log.now_of(job)
    assert (now.state, now.retried, now.stalled, now.outcome) == (state, 0, 0, None)
    assert log.do(act).verdict.word is Word.CONFLICT
    log.pass_time(60)
    assert log.take().id == job.id


def test_what_is_given_back_takes_over_what_its_key_wants() -> None:
    log = Log()
    job = log.dispatch(key="k", data=1)
    taken = log.take()
    blocked = log.dispatch(key="k", data=2)
    log.do(GiveBack(job.id, taken.token))
    assert (log.now_of(job).state, log.now_of(job).data) == (State.QUEUED, b"2")
    assert log.now_of(blocked).state is State.REPLACED


def test_what_is_given_back_to_a_deleted_queue_has_failed() -> None:
    log = Log()
    job = log.dispatch()
    taken = log.take()
    log.do(DropQueue("q"))
    log.do(GiveBack(job.id, taken.token))
    assert log.now_of(job).state is State.FAILED


def test_pages_keep_all_of_it_and_older_ones_are_read() -> None:
    log, other = Log(), Log()
    job = log.do(HERE).job
    assert job is not None
    offered(log, job)
    job = log.now_of(job)
    raw = tracked_pages.write_job("s", job, [(NOW, "line")], restore=True)
    tracked_pages.load(other.store, json.loads(raw), raw)
    assert other.store.get(job.id) == job
    older = json.loads(raw)
    older["job"] = {name: each for name, each in older["job"].items() if name not in ("jid", "amqp", "offered")}
    older["job"]["id"] += 1
    raw = json.dumps(older).encode()
    tracked_pages.load(other.store, older, raw)
    assert other.now_of(other.store.all_after(job.id, 1)[0]) == job._replace(
        id=job.id + 1, jid="", amqp=False, offered=-1
    )


def test_an_offer_is_a_job_that_asks_for_the_tracked_one() -> None:
    log = Log(retries=2, retry_delays=(5.0,))
    job = log.dispatch(type="T", data={"x": 1}, priority=-10, tags=("a",), amqp=True)
    found = reading.read_job(offer(job, now=NOW), queue="q", jid="")
    assert isinstance(found, Job)
    assert (found.jid, found.cls, found.args, found.priority, found.retry) == (str(job.id), "T", {"x": 1}, 7, 2)
    assert (found.retry_delays, found.tags, found.track) == ([5.0], ["a"], True)
    assert asked(found, "w") == Take(job=job.id, worker="w")


def test_a_job_of_a_producer_becomes_the_tracked_job_that_it_describes() -> None:
    act = asked(job_of(args=[1.10], key="k", retry=3, timeout=7, priority=9, min_backoff=2, tags=["t"]), "w")
    assert isinstance(act, Begin)
    log = Log()
    job = log.do(act).job
    assert job is not None
    assert (job.queue, job.key, job.type, job.jid, job.priority, job.tags) == ("q", "k", "T", "j", -15, ("t",))
    policy = job.policy
    assert (policy.retries, policy.timeout, policy.min_backoff, policy.max_stalls) == (3, 7.0, 2.0, 3)
    assert policy.heartbeat_timeout == 30.0
    for number in (True, -1, "7", None):
        assert isinstance(asked(job_of(tracked=number), "w"), Begin)


@pytest.mark.parametrize(
    ("data", "args"), [(b"null", b"[]"), (b"[1]", b"[1]"), (b'{"a":1}', b'{"a":1}'), (b'"x"', b'["x"]'), (b"7", b"[7]")]
)
def test_data_as_arguments(data: bytes, args: bytes) -> None:
    assert arguments(data) == args


def test_a_verdict_is_read_as_it_was_written() -> None:
    log = Log()
    judged = log.do(Begin(Dispatch("q", b'{"x": 1.10}', type="T", jid="j", amqp=True)), "mine")
    answer = read_verdict(write_verdict(judged))
    assert answer is not None
    assert answer.granted is not None
    assert (answer.uuid, answer.word, answer.granted.data, answer.granted.token) == (
        "mine", Word.DONE, b'{"x": 1.10}', "mine",
    )  # fmt: skip
    refused = read_verdict(write_verdict(log.do(Begin(HERE), "other")))
    assert refused is not None
    assert (refused.word, refused.granted) == (Word.CONFLICT, None)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b'{"type": "verdict"}', b'{"type": "verdict", "job": 7}'])
def test_what_is_no_verdict_is_none(raw: bytes) -> None:
    assert read_verdict(raw) is None


def test_amqp_needs_a_class() -> None:
    from amqpjobs.model import text
    from amqpjobs.model.tracked_wire import read_command

    raw = b'{"type": "command", "uuid": "u", "at": 1, "op": "dispatch", "queue": "q", "amqp": true}'
    found = read_command(Piece(0, raw, text.parse(raw)))
    assert found is not None
    assert found.act is None
