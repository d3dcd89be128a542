"""What one event changes of a tracked job, and of others of its key. Where it leads is told by `lifecycle.TABLE`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from amqpjobs.model import text
from amqpjobs.model.lifecycle import WAITING, Event, State, When, after
from amqpjobs.model.tracked import Flags, Policy, RunAt, Store, Tracked

Holds = Callable[[When], bool]


class Wish(NamedTuple):
    """What a dispatch wants of the job of its key that waits already."""

    data: bytes
    run_at: float | None
    policy: Policy
    flags: Flags
    amqp: bool


class Changes:
    """Events on jobs in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def to(
        self, job: Tracked, event: Event, at: float, holds: Holds | None = None, **changes: object
    ) -> Tracked | None:
        """Let an event happen; None, and nothing changed, where the table has no way on."""
        state = after(job.state, event, holds or just(When.ALWAYS))
        if state is None:
            return None
        new: Tracked = job._replace(state=state, updated_at=at, **changes)  # type: ignore[arg-type]  # fields of it
        if state is State.GONE:
            self._store.remove(job)
        else:
            self._store.change(new)
        return new

    # Jobs of one key.

    def waiting(self, queue: str, key: str) -> Tracked | None:
        """The one job of a key that waits."""
        return self._of_key(queue, key, WAITING)

    def running(self, queue: str, key: str) -> Tracked | None:
        """The one job of a key that runs."""
        return self._of_key(queue, key, frozenset({State.RUNNING}))

    def change(self, number: int, job: Tracked, wish: Wish, at: float) -> Tracked:
        """Give a job that waits what a later dispatch of its key wants."""
        flags, due = wish.flags, _due(job, wish, at)
        state = after(job.state, Event.CHANGE, just(When.NOW if due <= at else When.LATER))
        assert state is not None, "every job that waits may be changed"
        new = job._replace(state=state, due=due, updated_at=at, data=wish.data if flags.data else job.data,
            policy=wish.policy if flags.retry_strategy else job.policy,
            retried=0 if flags.reset_counts else job.retried, stalled=0 if flags.reset_counts else job.stalled,
            flags=flags if state is State.BLOCKED else None, amqp=job.amqp or wish.amqp,
            place=job.place if job.state is State.QUEUED else number,
        )  # fmt: skip
        self._store.change(new)
        return new

    def unblock(self, job: Tracked, at: float) -> None:
        """Let the job of the same key that waited for this one wait for a worker."""
        other = self._blocked_by(job)
        if other is not None:
            now = other.due is None or other.due <= at
            self.to(other, Event.UNBLOCK, at, just(When.NOW if now else When.LATER), flags=None)

    def merge(self, number: int, job: Tracked, at: float) -> Tracked:
        """A job is to run again: what was dispatched of its key meanwhile changes it, as its flags say."""
        other = self._blocked_by(job)
        if other is None:
            return job
        wish = Wish(other.data, other.due or other.created_at, other.policy, other.flags or Flags(), other.amqp)
        changed = self.change(number, job, wish, at)
        self.to(other, Event.MERGE, at, ended_at=at, flags=None, output=text.dump({"replaced_by": job.id}))
        return changed

    def _blocked_by(self, job: Tracked) -> Tracked | None:
        return self._of_key(job.queue, job.key, frozenset({State.BLOCKED}))

    def _of_key(self, queue: str, key: str, states: frozenset[State]) -> Tracked | None:
        return next((job for job in self._store.of_key(queue, key) if job.state in states), None) if key else None


def _due(job: Tracked, wish: Wish, at: float) -> float:
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


def just(when: When) -> Holds:
    """The condition that holds, and no other."""
    return lambda asked: asked is when
