"""What commands and time do to tracked jobs: each act, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

from amqpjobs.model.lifecycle import Event, State, When
from amqpjobs.model.tracked import DEFAULT_POLICY, Store, Tracked, Verdict, Word
from amqpjobs.model.tracked_changes import Changes, Wish, just
from amqpjobs.model.tracked_commands import (
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
from amqpjobs.model.tracked_endings import Endings
from amqpjobs.model.tracked_settings import policy_of

Told = tuple[Word, Tracked | None]


class Acts:
    """The acts of the fold, on its store. `number` is what a job that is made here is called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = Changes(store)
        self._endings = Endings(store, self._changes)

    def act(self, number: int, command: Command) -> Told:  # noqa: PLR0911 - one for each act
        """Apply a command; the word of the verdict, and the job that it was about."""
        act, at = command.act, command.at
        match act:
            case Dispatch():
                return self._dispatch(number, act, at)
            case Take():
                return self._take(act, command.uuid, at)
            case Report():
                return self._held(act.job, act.token, lambda job: self._endings.report(number, job, act, at))
            case Beat():
                return self._held(act.job, act.token, lambda job: self._beat(job, at))
            case Begin():
                return self._begin(number, act, command.uuid, at)
            case GiveBack():
                return self._held(act.job, act.token, lambda job: self._endings.give_back(number, job, act, at))
            case Bump():
                return self._bump(act, at)
            case Withdraw():
                return self._withdraw(act, at)
            case Delete():
                return self._held(act.job, None, lambda job: self._delete(job, at))
            case SetQueue():
                return self._set_queue(act)
            case DropQueue():
                return self._drop_queue(act, at)
        return Word.REFUSED, None

    def tick(self, number: int, job: Tracked, at: float) -> None:
        """Time has passed: what that changes of a job, if it does."""
        if job.wake is None or job.wake > at:
            return
        if job.state is State.RUNNING:
            self._endings.overdue(number, job, at)
        elif job.ended:
            self._changes.to(job, Event.EXPIRE, at)
        else:
            self._changes.to(job, Event.DUE, at, place=number)

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
            self._changes.to(job, Event.ABANDON, at, just(_had(job)))
        self._store.drop_queue(act.name)
        return Word.DONE, None

    # Jobs.

    def _dispatch(self, number: int, act: Dispatch, at: float) -> Told:
        """A job, once for each jid that a producer gave; or what it changes of the one of its key that waits."""
        known = self._store.verdict(of_jid(act.jid)) if act.jid else None
        if known is not None and known.job is not None:
            return Word.UPDATED, self._store.get(known.job)
        word, job = self._new(number, act, at)
        if act.jid and job is not None:
            self._store.keep_verdict(of_jid(act.jid), Verdict(word, job.id), at)
        return word, job

    def _new(self, number: int, act: Dispatch, at: float) -> Told:
        policy = self._store.queue(act.queue)
        if policy is None:
            if act.existing:
                return Word.NOT_FOUND, None
            self._store.keep_queue(act.queue, policy := DEFAULT_POLICY)
        waits = self._changes.waiting(act.queue, act.key) if act.key else None
        if waits is not None:
            wish = Wish(act.data, act.run_at, policy_of(waits.policy, act.settings), act.flags, act.amqp)
            return Word.UPDATED, self._changes.change(number, waits, wish, at)
        blocked = bool(act.key) and self._changes.running(act.queue, act.key) is not None
        state = State.QUEUED if act.run_at is None or act.run_at <= at else State.SCHEDULED
        job = Tracked(
            number, act.queue, State.BLOCKED if blocked else state, at, at, policy_of(policy, act.settings),
            key=act.key, type=act.type, priority=act.priority, tags=act.tags, place=number, due=act.run_at,
            flags=act.flags if blocked else None, data=act.data, jid=act.jid, amqp=act.amqp,
        )  # fmt: skip
        self._store.add(job)
        return Word.CREATED, job

    def _begin(self, number: int, act: Begin, token: str, at: float) -> Told:
        """Dispatch what a worker was delivered, unless it is known, and let it have the job if that is queued."""
        _, job = self._dispatch(number, act.dispatch, at)
        if job is None:  # it is known, and gone
            return Word.NOT_FOUND, None
        return self._give(job, token, act.worker, at) if job.state is State.QUEUED else (Word.CONFLICT, job)

    def _take(self, act: Take, token: str, at: float) -> Told:
        if act.job is not None:
            job = self._store.get(act.job)
            if job is None:
                return Word.NOT_FOUND, None
            return self._give(job, token, act.worker, at) if job.state is State.QUEUED else (Word.CONFLICT, job)
        job = self._store.next_queued(act.queue, act.type)
        if job is None:
            unknown = act.queue is not None and self._store.queue(act.queue) is None
            return (Word.NOT_FOUND if unknown else Word.EMPTY), None
        return self._give(job, token, act.worker, at)

    def _give(self, job: Tracked, token: str, worker: str, at: float) -> Told:
        taken = self._changes.to(
            job, Event.TAKE, at,
            token=token, worker=worker, started_at=at, beat_at=None, ended_at=None, attempt=job.attempt + 1,
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
        return self._changes.to(job, Event.BEAT, at, beat_at=at)

    def _bump(self, act: Bump, at: float) -> Told:
        running = self._store.running_by(act.worker, act.queue)
        for job in running:
            self._beat(job, at)
        return (Word.DONE if running else Word.EMPTY), None

    def _withdraw(self, act: Withdraw, at: float) -> Told:
        job = self._changes.waiting(act.queue, act.key)
        if job is None:
            running = self._changes.running(act.queue, act.key)
            return (Word.NOT_FOUND, None) if running is None else (Word.CONFLICT, running)
        return Word.DONE, self._changes.to(job, Event.WITHDRAW, at, ended_at=at)

    def _delete(self, job: Tracked, at: float) -> Tracked | None:
        gone = self._changes.to(job, Event.DELETE, at)
        if job.state is State.RUNNING:
            self._changes.unblock(job, at)
        return gone


def of_jid(jid: str) -> str:
    """Where the verdict of a job's dispatch is kept under its own name, whichever command brought it."""
    return f"jid:{jid}"


def _had(job: Tracked) -> When:
    return When.HAD_TIMED_OUT if job.outcome is State.TIMED_OUT else When.HAD_FAILED
