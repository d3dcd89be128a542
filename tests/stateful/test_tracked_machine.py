"""Many jobs, keys and workers, messages that come twice or late, clocks that jump: what must hold of tracked jobs."""

from __future__ import annotations

import json
import sqlite3

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from amqpjobs.model import text
from amqpjobs.model.lifecycle import ENDED, TABLE, WAITING, State
from amqpjobs.model.tracked import Flags, Policy, RunAt, Tracked, Word
from amqpjobs.model.tracked_acts import of_jid
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
from amqpjobs.model.tracked_fold import TrackedSet
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.streams.tracked_store import TrackedStore
from tests.unit.tracked import Log

QUEUES = st.sampled_from(["q", "q", "q", "r"])
KEYS = st.sampled_from(["a", "a", "a", "b", ""])
WORKERS = st.sampled_from(["v", "w"])
POLICIES = st.sampled_from(
    [
        Policy(timeout=0.0, heartbeat_timeout=10.0, retries=0, expires_after=1e4),
        Policy(timeout=20.0, heartbeat_timeout=0.0, expires_after=50.0, retries=1, retry_delays=(5.0,)),
        Policy(timeout=0.0, heartbeat_timeout=10.0, expires_after=0.0, retries=2, max_stalls=2, min_backoff=3.0),
    ]
)
FLAGS = st.builds(Flags, st.booleans(), st.sampled_from(RunAt), st.booleans(), st.booleans())
NEXT = {(state, way.to) for (state, _), ways in TABLE.items() for way in ways}
STEPS = 3
"""Two events may follow each other within one command (a retry that a blocked job changes)."""


def reachable(state: State, goal: State) -> bool:
    """Whether the table leads from one state to the other within a few steps."""
    reached = {state}
    for _ in range(STEPS):
        reached |= {to for each, to in NEXT if each in reached}
    return goal in reached


class TrackedMachine(RuleBasedStateMachine):
    """The fold is given commands; beside it, who holds what is kept in the plainest way."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log(queue="")
        self.messages: list[bytes] = []
        self.other = TrackedSet(TrackedStore(sqlite3.connect(":memory:", isolation_level=None)))
        self.fed = 0
        self.held: dict[str, int] = {}
        """Of each token ever given, the job."""
        self.seen: dict[int, Tracked] = {}
        self.uuids = 0
        fold, original = self.log.fold.fold, self.log.fold

        def recorded(offset: int, body: bytes) -> list[object]:
            assert offset == len(self.messages) + 2
            self.messages.append(body)
            return list(fold(offset, body))

        original.fold = recorded  # type: ignore[method-assign,assignment]  # to see all that it is given

    def give(self, act: Act) -> tuple[Word, Tracked | None]:
        self.uuids += 1
        raw = write_command(Command(f"u{self.uuids:05}", self.log.now, act))
        stamped = text.with_members(raw, {"from": "us", "seq": self.uuids})
        (judged,) = self.log.message(stamped)
        return judged.verdict.word, judged.job

    @initialize(policy=POLICIES)
    def begin(self, policy: Policy) -> None:
        self.give(SetQueue("q", policy))

    @rule(data=st.data(), queue=QUEUES)
    def something_rare(self, data: st.DataObject, queue: str) -> None:
        """What ends many lives at once would keep all of them short."""
        match data.draw(st.integers(0, 7)):
            case 0:
                self.drop_queue(queue)
            case 1:
                self.give(SetQueue("r", data.draw(POLICIES)))
            case 2:
                self.delete(data)
            case 3:
                self.bump(data.draw(WORKERS))
            case _:
                self.withdraw(queue, data.draw(KEYS) or "a")

    def drop_queue(self, queue: str) -> None:
        word, _ = self.give(DropQueue(queue))
        assert word in (Word.DONE, Word.NOT_FOUND)
        assert not self.log.store.waiting_in(queue)

    @rule(queue=QUEUES, key=KEYS, delay=st.sampled_from([None, -5.0, 0.0, 15.0]), flags=FLAGS, data=st.integers(0, 9))
    def dispatch(self, queue: str, key: str, delay: float | None, flags: Flags, data: int) -> None:
        run_at = None if delay is None else self.log.now + delay
        word, job = self.give(
            Dispatch(queue, b"%d" % data, key, "T" if data % 2 else "", data - 5, (), run_at, {}, flags)
        )
        assert job is not None
        assert word is (Word.UPDATED if job.id in self.seen else Word.CREATED)
        self.seen[job.id] = job

    @rule(queue=QUEUES, worker=WORKERS, key=KEYS, flags=FLAGS)
    def dispatch_and_take_and_dispatch(self, queue: str, worker: str, key: str, flags: Flags) -> None:
        self.dispatch(queue, key, None, flags, 0)
        self.take(queue, worker)
        self.dispatch(queue, key, None, flags, 1)

    @rule(queue=QUEUES, worker=WORKERS)
    def take(self, queue: str, worker: str) -> None:
        before = {job.id: job for job in self.log.store.all_after(-1, 1000)}
        word, job = self.give(Take(queue, None, worker))
        queued = [each for each in before.values() if each.queue == queue and each.state is State.QUEUED]
        if not queued:
            assert word in (Word.EMPTY, Word.NOT_FOUND)
            return
        assert word is Word.DONE
        assert job is not None
        assert before[job.id] == min(queued, key=lambda each: (each.priority, each.place))
        assert job.token not in self.held
        self.held[job.token] = job.id

    @rule(data=st.data(), status=st.sampled_from([None, State.COMPLETED, *[State.FAILED] * 3, State.CANCELLED]))
    def report(self, data: st.DataObject, status: State | None) -> None:
        if not self.held:
            return
        token = data.draw(st.sampled_from(sorted(self.held)[-3:]))
        job = self.log.get(self.held[token])
        word, _ = self.give(Report(self.held[token], token, status, b"1"))
        if job is None:
            assert word is Word.NOT_FOUND
        elif job.token != token or (job.state is not State.RUNNING and status is not State.CANCELLED):
            assert word is Word.CONFLICT
            assert self.log.get(job) == job
        elif job.state is State.RUNNING:
            assert word is Word.DONE

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        if not self.held:
            return
        token = data.draw(st.sampled_from(sorted(self.held)[-3:]))
        job = self.log.get(self.held[token])
        word, _ = self.give(Beat(self.held[token], token))
        holds = job is not None and job.token == token and job.state is State.RUNNING
        assert (word is Word.DONE) == holds

    @rule(jid=st.sampled_from(["x", "y", "z"]), worker=WORKERS)
    def a_worker_is_delivered_a_job(self, jid: str, worker: str) -> None:
        known = self.log.store.verdict(of_jid(jid))
        before = None if known is None or known.job is None else self.log.get(known.job)
        word, job = self.give(Begin(Dispatch("q", b"1", type="T", jid=jid, amqp=True), worker))
        if known is not None and (before is None or before.state is not State.QUEUED):
            assert word is (Word.NOT_FOUND if before is None else Word.CONFLICT)
            assert job == before
            return
        assert word is Word.DONE
        assert job is not None
        assert job.token not in self.held
        assert before is None or before.id == job.id
        self.held[job.token] = job.id

    @rule(data=st.data(), delay=st.sampled_from([None, 15.0]))
    def give_back(self, data: st.DataObject, delay: float | None) -> None:
        if not self.held:
            return
        token = data.draw(st.sampled_from(sorted(self.held)[-3:]))
        job = self.log.get(self.held[token])
        word, after = self.give(GiveBack(self.held[token], token, None if delay is None else self.log.now + delay))
        holds = job is not None and job.token == token and job.state is State.RUNNING
        assert (word is Word.DONE) == holds
        if holds:
            assert job is not None
            assert after is not None
            # One that was dispatched meanwhile brings its own time, which lies ahead once the clock was set back.
            later = after.state is State.SCHEDULED and job.key is not None and (after.due or 0.0) > self.log.now
            assert later or after.state in (State.QUEUED, State.RETRYING, State.FAILED)

    @invariant()
    def what_is_queued_for_amqp_workers_is_to_be_offered(self) -> None:
        queued = [job for job in self.log.store.all_after(-1, 1000) if job.amqp and job.state is State.QUEUED]
        assert {job.id for job in self.log.store.to_offer(1000)} == {j.id for j in queued if j.offered != j.place}

    @rule()
    def the_leader_offers(self) -> None:
        jobs = [[job.id, job.place] for job in self.log.store.to_offer(2)]
        self.log.entry({"type": "offered", "epoch": "e", "n": 1, "jobs": jobs}, "leader")
        assert not {id_ for id_, _ in jobs} & {job.id for job in self.log.store.to_offer(1000)}

    def bump(self, worker: str) -> None:
        runs = [
            job for job in self.log.store.all_after(-1, 1000) if job.state is State.RUNNING and job.worker == worker
        ]
        assert (self.give(Bump(worker))[0] is Word.DONE) == bool(runs)

    def withdraw(self, queue: str, key: str) -> None:
        waits = [j for j in self.log.store.of_key(queue, key) if j.state in WAITING]
        assert (self.give(Withdraw(queue, key))[0] is Word.DONE) == bool(waits)

    def delete(self, data: st.DataObject) -> None:
        jobs = self.log.store.all_after(-1, 1000)
        if jobs:
            self.give(Delete(data.draw(st.sampled_from(jobs)).id))

    @rule(seconds=st.sampled_from([1.0, 6.0, 6.0, 25.0, 25.0, 25.0, 25.0, 3600.0, -3600.0]))
    def time_passes(self, seconds: float) -> None:
        self.log.pass_time(seconds)
        assert not self.log.store.due(self.log.now, 1)

    @rule(back=st.integers(1, 5))
    def a_message_comes_again(self, back: int) -> None:
        """Its confirm was lost: the same bytes, later in the log."""
        if len(self.messages) < back:
            return
        before = self.log.store.all_after(-1, 1000)
        body = self.messages[-back]
        self.log.message(body)
        assert self.log.store.all_after(-1, 1000) == before

    @rule(ahead=st.sampled_from([0.0, 30.0, 1e6]))
    def a_stranger_tells_the_time(self, ahead: float) -> None:
        before = self.log.store.all_after(-1, 1000)
        self.log.now += ahead
        for each in before:
            self.log.tick(each.id, source="stranger")
        self.log.now -= ahead
        assert self.log.store.all_after(-1, 1000) == before

    @invariant()
    def a_key_has_one_that_runs_and_one_that_waits(self) -> None:
        live = [job for job in self.log.store.all_after(-1, 1000) if job.key and not job.ended]
        for job in live:
            same = [each.state for each in live if (each.queue, each.key) == (job.queue, job.key)]
            assert len(same) <= 2
            assert sum(state is State.RUNNING for state in same) <= 1
            assert sum(state in WAITING for state in same) <= 1
            assert (job.state is State.BLOCKED) <= (State.RUNNING in same)
            assert len(same) == 1 or State.BLOCKED in same

    @invariant()
    def a_life_follows_the_table(self) -> None:
        now = {job.id: job for job in self.log.store.all_after(-1, 1000)}
        for id_, job in self.seen.items():
            state = now[id_].state if id_ in now else State.GONE
            assert state is job.state or reachable(job.state, state), (job.state, state)
            if id_ in now and job.state in ENDED:
                assert now[id_] == job, "what has ended stays as it is"
        gone = self.seen.keys() - now.keys()
        self.seen = {**{id_: job for id_, job in self.seen.items() if id_ not in gone}, **now}

    @invariant()
    def another_reader_comes_to_the_same(self) -> None:
        if not self.fed:
            for offset, body in enumerate(self._head()):
                self.other.fold(offset, body)
        for number, body in enumerate(self.messages[self.fed :], self.fed + 2):
            self.other.fold(number, body)
        self.fed = len(self.messages)
        assert isinstance(self.other.store, TrackedStore)
        self.other.store.flush()
        self.other.store.rolled_back()  # from disk
        assert self.other.store.all_after(-1, 1000) == self.log.store.all_after(-1, 1000)

    def _head(self) -> list[bytes]:
        epoch = {"type": "epoch", "epoch": "e", "at": 0, "from": "leader", "seq": 1}
        return [json.dumps(epoch).encode(), json.dumps(epoch | {"type": "term", "n": 1, "seq": 2}).encode()]


TestTrackedMachine = TrackedMachine.TestCase
TestTrackedMachine.settings = settings(
    max_examples=50, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
