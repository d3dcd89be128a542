"""How an attempt of a tracked job ends: well, badly, by time, or given back; and what follows from that."""

from __future__ import annotations

from amqpjobs.model import text
from amqpjobs.model.lifecycle import Event, State, When, after
from amqpjobs.model.tracked import Store, Tracked
from amqpjobs.model.tracked_changes import Changes, just
from amqpjobs.model.tracked_commands import GiveBack, Report

FAIL_SUFFIX = "-fail"
"""A queue of this name beside another receives `[id or key, data, error]` of each job of it that fails for good."""

_EVENTS = {State.COMPLETED: Event.COMPLETE, State.FAILED: Event.FAIL, State.CANCELLED: Event.CANCEL}
_LEFT = {
    Event.FAIL: (When.RETRY_LEFT, When.NO_RETRY_LEFT),
    Event.TIME_OUT: (When.RETRY_LEFT, When.NO_RETRY_LEFT),
    Event.STALL: (When.STALL_LEFT, When.NO_STALL_LEFT),
}


class Endings:
    """What ends attempts. `number` names a job that is made by it, and is its place in the order."""

    def __init__(self, store: Store, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def report(self, number: int, job: Tracked, act: Report, at: float) -> Tracked | None:
        """All of it, or nothing."""
        event = Event.NOTE if act.status is None else _EVENTS[act.status]
        if after(job.state, event, lambda _: True) is None:
            return None
        noted = job._replace(
            output=job.output if act.output is None else act.output,
            error=act.error or job.error,
            progress=job.progress if act.progress is None else act.progress,
        )
        for line in act.lines:
            self._store.add_line(job.id, at, line)
        match event:
            case Event.FAIL:
                left = not act.permanent and self._may_retry(job)
                return self._fail(number, noted, event, at, left=left, retry_at=act.retry_at)
            case Event.NOTE:
                return self._changes.to(noted, event, at)
        ended = self._changes.to(noted, event, at, ended_at=at)
        if job.state is State.RUNNING:
            self._changes.unblock(job, at)
        return ended

    def give_back(self, number: int, job: Tracked, act: GiveBack, at: float) -> Tracked | None:
        """Its holder has not done it, and that counts as no try."""
        if self._store.queue(job.queue) is None:  # deleted, and what would wait in it went with it
            return self._fail(number, job, Event.FAIL, at, left=False)
        due = at if act.run_at is None else act.run_at
        when = just(When.NOW if due <= at else When.LATER)
        new = self._changes.to(job, Event.GIVE_BACK, at, when, place=number, due=due, outcome=None)
        return None if new is None else self._changes.merge(number, new, at)

    def overdue(self, number: int, job: Tracked, at: float) -> None:
        """Time ran out for a running job: it was silent, or it took, for too long."""
        late, silent = job.late_at, job.silent_at
        if silent is None or (late is not None and late < silent):
            noted = job._replace(error=f"timed out after {job.policy.timeout:g} s")
            self._fail(number, noted, Event.TIME_OUT, at, left=self._may_retry(job))
            return
        noted = job._replace(error=f"no heartbeat for {job.policy.heartbeat_timeout:g} s")
        if job.policy.max_stalls is None:
            self._fail(number, noted, Event.TIME_OUT, at, left=self._may_retry(job))
            return
        left = job.stalled + 1 < job.policy.max_stalls and self._store.queue(job.queue) is not None
        self._fail(number, noted._replace(stalled=job.stalled + 1), Event.STALL, at, left=left, retry_at=at)

    def _may_retry(self, job: Tracked) -> bool:
        return job.retried < job.policy.retries and self._store.queue(job.queue) is not None

    def _fail(
        self, number: int, job: Tracked, event: Event, at: float, *, left: bool, retry_at: float | None = None
    ) -> Tracked | None:
        """An attempt ended badly: the job runs again, or has failed for good."""
        outcome = State.TIMED_OUT if event is Event.TIME_OUT else State.FAILED
        due = at + job.policy.delay(job.retried) if retry_at is None else retry_at
        new = self._changes.to(
            job, event, at, just(_LEFT[event][0 if left else 1]), ended_at=at, outcome=outcome, place=number,
            due=due if left else job.due, retried=job.retried + (1 if left and event is not Event.STALL else 0),
        )  # fmt: skip
        if new is None:
            return None
        if left:
            return self._changes.merge(number, new, at)
        self._changes.unblock(new, at)
        self._to_fail_queue(number, new, at)
        return new

    def _to_fail_queue(self, number: int, job: Tracked, at: float) -> None:
        queue = job.queue + FAIL_SUFFIX
        policy = self._store.queue(queue)
        if policy is None:
            return
        data = text.dump([job.key or job.id, text.Verbatim(job.data), job.error])
        made = Tracked(number, queue, State.QUEUED, at, at, policy, type=job.type, place=number, data=data)
        self._store.add(made)
