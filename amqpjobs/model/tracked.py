"""A tracked job, the settings of its queue, and the store that the fold of `job_events` works on."""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from amqpjobs.model.lifecycle import ENDED, State
from amqpjobs.model.pending import Claim

NULL = b"null"

ITEM_BITS = 14
"""A job's number is the offset of the message that dispatched it and, in so many low bits, the item in it."""


class RunAt(enum.StrEnum):
    """Whether a job that waits, dispatched again, takes over the new time."""

    ALWAYS = "true"
    NEVER = "false"
    IF_LATER = "if_later"
    IF_EARLIER = "if_earlier"


class Flags(NamedTuple):
    """What of a job that waits is replaced when it is dispatched again."""

    data: bool = True
    run_at: RunAt = RunAt.ALWAYS
    retry_strategy: bool = False
    reset_counts: bool = False


class Policy(NamedTuple):
    """How long a job may run, be silent and be kept once it has ended (seconds, 0: for ever), and how it is retried.

    `retries` is how often it runs again after a failure; before each, `retry_delays` (seconds, the last one repeats),
    or else a delay that doubles from `min_backoff` to `max_backoff`. With `max_stalls`, a silent job was lost by its
    worker: it runs again without a delay, and has failed when it was lost so often.
    """

    timeout: float = 300.0
    heartbeat_timeout: float = 0.0
    expires_after: float = 300.0
    retries: int = 0
    retry_delays: tuple[float, ...] = ()
    min_backoff: float | None = None
    max_backoff: float | None = None
    max_stalls: int | None = None

    def delay(self, retried: int) -> float:
        """Seconds before retry number `retried` + 1."""
        if self.retry_delays:
            return self.retry_delays[min(retried, len(self.retry_delays) - 1)]
        if self.min_backoff is None and self.max_backoff is None:
            return 0.0
        most = 30 * 86_400.0 if self.max_backoff is None else self.max_backoff
        return min(most, (1.0 if self.min_backoff is None else self.min_backoff) * 2.0 ** min(retried, 60))


DEFAULT_POLICY = Policy()


class Tracked(NamedTuple):
    """One job. Times are seconds since 1970; `data` and `output` are JSON as it came."""

    id: int
    queue: str
    state: State
    created_at: float
    updated_at: float
    policy: Policy = DEFAULT_POLICY
    key: str = ""
    type: str = ""
    priority: int = 0
    """Kue's: less is sooner."""
    tags: tuple[str, ...] = ()
    place: int = 0
    """Where it was queued, in the log's order: of one priority the first comes first."""
    due: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    beat_at: float | None = None
    token: str = ""
    """Of the attempt that runs, or ran last: what its holder shows."""
    worker: str = ""
    attempt: int = 0
    retried: int = 0
    stalled: int = 0
    outcome: State | None = None
    """How the last attempt that did not succeed ended: failed or timed out."""
    error: str = ""
    progress: float | None = None
    flags: Flags | None = None
    """Of a blocked job: what it replaces in the job that it waits for, if that is to run again."""
    data: bytes = NULL
    output: bytes = NULL
    jid: str = ""
    """What its producer calls it, where that came by AMQP."""
    amqp: bool = False
    """Whether it is offered to AMQP workers, by a message in the queue of its name."""
    offered: int = -1
    """The `place` that it was offered at: it is offered once for each time that it is queued."""

    @property
    def ended(self) -> bool:
        """Whether no worker takes it any more."""
        return self.state in ENDED

    @property
    def to_offer(self) -> bool:
        """Whether AMQP workers are to be told of it."""
        return self.amqp and self.state is State.QUEUED and self.offered != self.place

    @property
    def wake(self) -> float | None:
        """When time alone changes it; None: never."""
        if self.state in (State.SCHEDULED, State.RETRYING):
            return self.due
        if self.ended:
            keep = self.policy.expires_after
            return self.ended_at + keep if keep and self.ended_at is not None else None
        if self.state is not State.RUNNING:
            return None
        return min(filter(None, (self.silent_at, self.late_at)), default=None)

    @property
    def late_at(self) -> float | None:
        """When this attempt has run for too long."""
        return self.started_at + self.policy.timeout if self.policy.timeout and self.started_at is not None else None

    @property
    def silent_at(self) -> float | None:
        """When this attempt has been silent for too long."""
        heard = self.started_at if self.beat_at is None else self.beat_at
        return heard + self.policy.heartbeat_timeout if self.policy.heartbeat_timeout and heard is not None else None


class Word(enum.StrEnum):
    """What the fold says of a command."""

    CREATED = "created"
    UPDATED = "updated"
    DONE = "done"
    EMPTY = "empty"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    REFUSED = "refused"


class Verdict(NamedTuple):
    """What became of a command, and the job that it was about, where there is one."""

    word: Word
    job: int | None = None


class Judged(NamedTuple):
    """The verdict of one command, and its job as it was then."""

    uuid: str
    verdict: Verdict
    job: Tracked | None = None


class Stand(NamedTuple):
    """What the fold knows of its stream as a whole. `base` is added to the numbers of this incarnation's jobs.

    `sealed`: what an earlier life of the stream held has been brought over.
    """

    epoch: str | None = None
    term: Claim | None = None
    leader: str = ""
    base: int = 0
    sealed: bool = False
    log_time: float = 0.0
    forgot_at: float = 0.0
    paged_at: float | None = None
    """When all of it was last written into the stream again."""


class Store(Protocol):
    """Where the fold keeps its state. No method has an opinion of its own."""

    def stand(self) -> Stand:
        """Epoch, term and the log's time."""
        ...

    def keep_stand(self, stand: Stand) -> None:
        """Replace them."""
        ...

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        ...

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        ...

    def verdict(self, uuid: str) -> Verdict | None:
        """What was said of a command."""
        ...

    def keep_verdict(self, uuid: str, verdict: Verdict, at: float) -> None:
        """Remember it."""
        ...

    def forget_verdicts(self, before: float) -> None:
        """Drop those of commands whose `at` is earlier."""
        ...

    def queue(self, name: str) -> Policy | None:
        """The settings of a queue; None when there is none."""
        ...

    def keep_queue(self, name: str, policy: Policy) -> None:
        """Create or replace them."""
        ...

    def drop_queue(self, name: str) -> None:
        """Forget them."""
        ...

    def get(self, id_: int) -> Tracked | None:
        """A job by its number."""
        ...

    def add(self, job: Tracked) -> None:
        """A new job."""
        ...

    def change(self, job: Tracked) -> None:
        """A job is not as it was."""
        ...

    def remove(self, job: Tracked) -> None:
        """Forget a job and all of it."""
        ...

    def next_queued(self, queue: str | None, type_: str | None) -> Tracked | None:
        """The queued job that is next, of a queue, of a type, or of both."""
        ...

    def of_key(self, queue: str, key: str) -> list[Tracked]:
        """The jobs of a key that wait or run: at most one of each."""
        ...

    def running_by(self, worker: str, queue: str | None) -> list[Tracked]:
        """What a worker runs (of one queue)."""
        ...

    def waiting_in(self, queue: str) -> list[Tracked]:
        """All that waits in a queue."""
        ...

    def add_line(self, id_: int, at: float, line: str) -> bool:
        """One more line of a job's log; False when it has as many as it may."""
        ...
