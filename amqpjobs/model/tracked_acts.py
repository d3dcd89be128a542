"""What commands and time do to tracked jobs. Where it leads is told by `lifecycle.TABLE`; here is what else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amqpjobs.model import text
from amqpjobs.model.lifecycle import WAITING, Event, State, When, after
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Policy, RunAt, Store, Tracked, Word
from amqpjobs.model.tracked_commands import (
    Beat,
    Bump,
    Command,
    Delete,
    Dispatch,
    DropQueue,
    Report,
    SetQueue,
    Take,
    Withdraw,
    policy_of,
)

FAIL_SUFFIX = "-fail"
"""A queue of this name beside another receives `[id or key, data, error]` of each job of it that fails for good."""

Told = tuple[Word, Tracked | None]
_EVENTS = {State.COMPLETED: Event.COMPLETE, State.FAILED: Event.FAIL, State.CANCELLED: Event.CANCEL}


class Acts:
    """The acts of the fold, on its store. `number` is what a job that is made here is called."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def act(self, number: int, command: Command) -> Told:  # noqa: PLR0911 - one for each act
        """Apply a command; the word of the verdict, and the job that it was about."""
        act, at = command.act, command.at
        match act:
            case SetQueue():
                return self._set_queue(act)
            case DropQueue():
                return self._drop_queue(act, at)
            case Dispatch():
                return self._dispatch(number, act, at)
            case Take():
                return self._take(act, command.uuid, at)
            case Beat():
                return self._held(act.job, act.token, lambda job: self._beat(job, at))
            case Bump():
                return self._bump(act, at)
            case Report():
                return self._held(act.job, act.token, lambda job: self._report(number, job, act, at))
            case Withdraw():
                return self._withdraw(act, at)
            case Delete():
                return self._held(act.job, None, lambda job: self._delete(job, at))
        return Word.REFUSED, None

    def tick(self, number: int, job: Tracked, at: float) -> None:
        """Time has passed: what that changes of a job, if it does."""
        if job.wake is None or job.wake > at:
            return
        if job.state is State.RUNNING:
            self._overdue(number, job, at)
        elif job.ended:
            self._to(job, Event.EXPIRE, at)
        else:
            self._to(job, Event.DUE, at, place=number)

    # Queues.

    def _set_queue(self, act: SetQueue) -> Told:
        word = Word.CREATED if self._store.queue(act.name) is None else Word.UPDATED
        self._store.keep_queue(act.name, act.policy)
        return word, None

    def _drop_queue(self, act: DropQueue, at: float) -> Told:
        """What waits goes with it; what waits for its next try stays as it ended, and no other try follows."""
        if self._store.queue(act.name) is None:
            return Word.NOT_FOUND, None
        for job in self._store.waiting_in(act.name):
            self._to(job, Event.ABANDON, at, _just(_had(job)))
        self._store.drop_queue(act.name)
        return Word.DONE, None

    # Jobs.

    def _dispatch(self, number: int, act: Dispatch, at: float) -> Told:
        """A job; or what it changes of the one of its key that waits."""
        policy = self._store.queue(act.queue)
        if policy is None:
            if act.existing:
                return Word.NOT_FOUND, None
            self._store.keep_queue(act.queue, policy := DEFAULT_POLICY)
        waits = self._waiting(act.queue, act.key)
        if waits is not None:
            wanted = policy_of(waits.policy, act.settings)
            return Word.UPDATED, self._change(number, waits, _Wish(act.data, act.run_at, wanted, act.flags), at)
        blocked = self._running(act.queue, act.key) is not None
        state = State.QUEUED if act.run_at is None or act.run_at <= at else State.SCHEDULED
        job = Tracked(
            number, act.queue, State.BLOCKED if blocked else state, at, at, policy_of(policy, act.settings),
            key=act.key, type=act.type, priority=act.priority, tags=act.tags, place=number, due=act.run_at,
            flags=act.flags if blocked else None, data=act.data,
        )  # fmt: skip
        self._store.add(job)
        return Word.CREATED, job

    def _change(self, number: int, job: Tracked, wish: _Wish, at: float) -> Tracked:
        """Give a job that waits what a later dispatch of its key wants."""
        flags, due = wish.flags, _due(job, wish, at)
        state = after(job.state, Event.CHANGE, _just(When.NOW if due <= at else When.LATER))
        assert state is not None, "every job that waits may be changed"
        new = replace(
            job, state=state, due=due, updated_at=at, data=wish.data if flags.data else job.data,
            policy=wish.policy if flags.retry_strategy else job.policy,
            retried=0 if flags.reset_counts else job.retried, stalled=0 if flags.reset_counts else job.stalled,
            flags=flags if state is State.BLOCKED else None,
            place=job.place if job.state is State.QUEUED else number,
        )  # fmt: skip
        self._store.change(new)
        return new

    def _take(self, act: Take, token: str, at: float) -> Told:
        job = self._store.next_queued(act.queue, act.type)
        if job is None:
            unknown = act.queue is not None and self._store.queue(act.queue) is None
            return (Word.NOT_FOUND if unknown else Word.EMPTY), None
        taken = self._to(
            job, Event.TAKE, at,
            token=token, worker=act.worker, started_at=at, beat_at=None, ended_at=None, attempt=job.attempt + 1,
        )  # fmt: skip
        assert taken is not None, "what is queued may be taken"
        return Word.DONE, taken

    def _held(self, id_: int, token: str | None, change: Callable[[Tracked], Tracked | None]) -> Told:
        """Change a job, unless it is held by another attempt than the one that speaks."""
        job = self._store.get(id_)
        if job is None:
            return Word.NOT_FOUND, None
        if token is not None and token != job.token:
            return Word.CONFLICT, job
        new = change(job)
        return (Word.CONFLICT, job) if new is None else (Word.DONE, new)

    def _beat(self, job: Tracked, at: float) -> Tracked | None:
        return self._to(job, Event.BEAT, at, beat_at=at)

    def _bump(self, act: Bump, at: float) -> Told:
        running = self._store.running_by(act.worker, act.queue)
        for job in running:
            self._beat(job, at)
        return (Word.DONE if running else Word.EMPTY), None

    def _withdraw(self, act: Withdraw, at: float) -> Told:
        job = self._waiting(act.queue, act.key)
        if job is None:
            running = self._running(act.queue, act.key)
            return (Word.NOT_FOUND, None) if running is None else (Word.CONFLICT, running)
        return Word.DONE, self._to(job, Event.WITHDRAW, at, ended_at=at)

    def _delete(self, job: Tracked, at: float) -> Tracked | None:
        gone = self._to(job, Event.DELETE, at)
        if job.state is State.RUNNING:
            self._unblock(job, at)
        return gone

    def _report(self, number: int, job: Tracked, act: Report, at: float) -> Tracked | None:
        """All of it, or nothing."""
        event = Event.NOTE if act.status is None else _EVENTS[act.status]
        if after(job.state, event, lambda _: True) is None:
            return None
        noted = replace(
            job,
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
                return self._to(noted, event, at)
        ended = self._to(noted, event, at, ended_at=at)
        if job.state is State.RUNNING:
            self._unblock(job, at)
        return ended

    # Failing.

    def _overdue(self, number: int, job: Tracked, at: float) -> None:
        """Time ran out for a running job: it was silent, or it took, for too long."""
        late, silent = job.late_at, job.silent_at
        if silent is None or (late is not None and late < silent):
            noted = replace(job, error=f"timed out after {job.policy.timeout:g} s")
            self._fail(number, noted, Event.TIME_OUT, at, left=self._may_retry(job))
            return
        noted = replace(job, error=f"no heartbeat for {job.policy.heartbeat_timeout:g} s")
        if job.policy.max_stalls is None:
            self._fail(number, noted, Event.TIME_OUT, at, left=self._may_retry(job))
            return
        left = job.stalled + 1 < job.policy.max_stalls and self._store.queue(job.queue) is not None
        self._fail(number, replace(noted, stalled=job.stalled + 1), Event.STALL, at, left=left, retry_at=at)

    def _may_retry(self, job: Tracked) -> bool:
        return job.retried < job.policy.retries and self._store.queue(job.queue) is not None

    def _fail(
        self, number: int, job: Tracked, event: Event, at: float, *, left: bool, retry_at: float | None = None
    ) -> Tracked | None:
        """An attempt ended badly: the job runs again, or has failed for good."""
        outcome = State.TIMED_OUT if event is Event.TIME_OUT else State.FAILED
        due = at + job.policy.delay(job.retried) if retry_at is None else retry_at
        new = self._to(
            job, event, at, _just(_LEFT[event][0 if left else 1]), ended_at=at, outcome=outcome, place=number,
            due=due if left else job.due, retried=job.retried + (1 if left and event is not Event.STALL else 0),
        )  # fmt: skip
        if new is None:
            return None
        if left:
            return self._merge(number, new, at)
        self._unblock(new, at)
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

    # Jobs of one key.

    def _unblock(self, job: Tracked, at: float) -> None:
        """Let the job of the same key that waited for this one wait for a worker."""
        other = self._blocked_by(job)
        if other is not None:
            now = other.due is None or other.due <= at
            self._to(other, Event.UNBLOCK, at, _just(When.NOW if now else When.LATER), flags=None)

    def _merge(self, number: int, job: Tracked, at: float) -> Tracked:
        """A job is to run again: what was dispatched of its key meanwhile changes it, as its flags say."""
        other = self._blocked_by(job)
        if other is None:
            return job
        wish = _Wish(other.data, other.due or other.created_at, other.policy, other.flags or Flags())
        changed = self._change(number, job, wish, at)
        self._to(other, Event.MERGE, at, ended_at=at, flags=None, output=text.dump({"replaced_by": job.id}))
        return changed

    def _blocked_by(self, job: Tracked) -> Tracked | None:
        return self._of_key(job.queue, job.key, frozenset({State.BLOCKED}))

    def _waiting(self, queue: str, key: str) -> Tracked | None:
        return self._of_key(queue, key, WAITING)

    def _running(self, queue: str, key: str) -> Tracked | None:
        return self._of_key(queue, key, frozenset({State.RUNNING}))

    def _of_key(self, queue: str, key: str, states: frozenset[State]) -> Tracked | None:
        return next((job for job in self._store.of_key(queue, key) if job.state in states), None) if key else None

    def _to(
        self, job: Tracked, event: Event, at: float, holds: Callable[[When], bool] | None = None, **changes: object
    ) -> Tracked | None:
        """Let an event happen; None, and nothing changed, where the table has no way on."""
        state = after(job.state, event, holds or _just(When.ALWAYS))
        if state is None:
            return None
        new: Tracked = replace(job, state=state, updated_at=at, **changes)  # type: ignore[arg-type]  # fields of it
        if state is State.GONE:
            self._store.remove(job)
        else:
            self._store.change(new)
        return new


class _Wish:
    """What a dispatch wants of the job of its key that waits already."""

    __slots__ = ("data", "flags", "policy", "run_at")

    def __init__(self, data: bytes, run_at: float | None, policy: Policy, flags: Flags) -> None:
        self.data, self.run_at, self.policy, self.flags = data, run_at, policy, flags


_LEFT = {
    Event.FAIL: (When.RETRY_LEFT, When.NO_RETRY_LEFT),
    Event.TIME_OUT: (When.RETRY_LEFT, When.NO_RETRY_LEFT),
    Event.STALL: (When.STALL_LEFT, When.NO_STALL_LEFT),
}


def _due(job: Tracked, wish: _Wish, at: float) -> float:
    old = job.created_at if job.due is None else job.due
    new = at if wish.run_at is None else wish.run_at
    match wish.flags.run_at:
        case RunAt.ALWAYS:
            return new
        case RunAt.NEVER:
            return old
        case RunAt.IF_LATER:
            return max(old, new)
        case RunAt.IF_EARLIER:
            return min(old, new)


def _had(job: Tracked) -> When:
    return When.HAD_TIMED_OUT if job.outcome is State.TIMED_OUT else When.HAD_FAILED


def _just(when: When) -> Callable[[When], bool]:
    return lambda asked: asked is when
