"""A tracked job as a row of its table, and back."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import orjson

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Policy, RunAt, Tracked

STATES = list(State)
CODES = {state: code for code, state in enumerate(STATES)}

SELECT = """SELECT jobs.id, queue, type, key, state, priority, place, worker, rest, data, output
 FROM jobs JOIN payloads ON payloads.id=jobs.id """
_REST = (
    "created_at", "updated_at", "due", "started_at", "ended_at", "beat_at", "token", "attempt", "retried", "stalled",
    "error", "progress", "jid", "amqp", "offered",
)  # fmt: skip
_get_rest = attrgetter(*_REST)


def row_of(job: Tracked) -> tuple[Any, ...]:
    """All columns of the table but the number, in their order."""
    flags = None if job.flags is None else list(job.flags)
    rest = [*_get_rest(job), sparse(job.policy), list(job.tags), job.outcome, flags]
    return (
        job.queue, job.type, job.key, CODES[job.state], job.priority, job.place, job.wake, job.worker,
        1 if job.to_offer else None,
        orjson.dumps(rest).decode(),
    )  # fmt: skip


def job_of(row: tuple[Any, ...]) -> Tracked:
    """The job of a row that `SELECT` found."""
    id_, queue, type_, key, code, priority, place, worker, rest, data, output = row
    kept = orjson.loads(rest)
    named = dict(zip(_REST, kept, strict=False))
    policy, tags, outcome, flags = kept[len(_REST) :]
    return Tracked(
        id=id_, queue=queue, type=type_, key=key, state=STATES[code], priority=priority, place=place, worker=worker,
        data=data, output=output, policy=policy_from(policy), tags=tuple(tags),
        outcome=None if outcome is None else State(outcome), flags=None if flags is None else _flags(flags), **named,
    )  # fmt: skip


def sparse(policy: Policy) -> list[Any]:
    """Null stands for what is as by default."""
    return [None if value == usual else value for value, usual in zip(policy, DEFAULT_POLICY, strict=True)]


def policy_from(kept: list[Any]) -> Policy:
    """What `sparse` wrote."""
    fields: list[Any] = [u if value is None else value for value, u in zip(kept, DEFAULT_POLICY, strict=True)]
    found = Policy(*fields)
    return found._replace(retry_delays=tuple(found.retry_delays))


def _flags(kept: list[Any]) -> Flags:
    found = Flags(*kept)
    return found._replace(run_at=RunAt(found.run_at))
