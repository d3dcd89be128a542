"""What is asked of tracked jobs: the commands of `job_events`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import NULL, Flags, Policy

MOST_TAGS = 100
MOST_TEXT = 4096
"""Characters of an error, a tag, a key, a worker's name or a line of a log."""
USUAL = Flags()
SETTLES = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Create a queue, or give it other settings."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class DropQueue:
    """Delete a queue, and what waits in it."""

    name: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job; with a `key`, the one job of that key that waits. `settings` go over those of its queue.

    `existing`: an unknown queue is an error, and not created. `jid`: one job for each. `amqp`: it is offered to AMQP
    workers, as a job of class `type`.
    """

    queue: str
    data: bytes = NULL
    key: str = ""
    type: str = ""
    priority: int = 0
    tags: tuple[str, ...] = ()
    run_at: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    flags: Flags = USUAL
    existing: bool = False
    jid: str = ""
    amqp: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """The next job of a queue, of a type, or of both; or this one. The command's uuid is the token of the attempt."""

    queue: str | None = None
    type: str | None = None
    worker: str = ""
    job: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Dispatch a job that a worker was delivered, unless that is known, and take it. The uuid is the token."""

    dispatch: Dispatch
    worker: str = ""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Put a running job back, to run again now or later, without counting a try."""

    job: int
    token: str | None = None
    run_at: float | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life of one attempt; without a token, of whichever runs."""

    job: int
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Bump:
    """A sign of life of all that a worker runs (of one queue)."""

    worker: str
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker, or an operator who cancels, says of a job; each member may be absent.

    `permanent`: a failure that is not to be retried. `retry_at` is the time of the next try.
    """

    job: int
    token: str | None = None
    status: State | None = None
    output: bytes | None = None
    error: str = ""
    permanent: bool = False
    retry_at: float | None = None
    progress: float | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancel the job of a key, if it has not begun."""

    queue: str
    key: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Forget a job, whatever it does."""

    job: int


Act = SetQueue | DropQueue | Dispatch | Take | Begin | Beat | Bump | Report | GiveBack | Withdraw | Delete


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `at` in seconds since 1970 by the clock of who gave it. `act` is None where it cannot be read."""

    uuid: str
    at: float
    act: Act | None
    by: str = ""
