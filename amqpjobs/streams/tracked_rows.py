"""A tracked job as a row of its table, and back."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import orjson

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Policy, RunAt, Tracked

STATES = list(State)
CODES = {state: code for code, state in enumerate(STATES)}

INLINE = 1024
"""Bytes of data and output together that stand in a job's own row: what is longer would be written again with each
change of its state."""

SELECT = """SELECT jobs.id, queue, type, key, state, priority, place, worker, rest,
 coalesce(jobs.data, payloads.data), coalesce(jobs.output, payloads.output)
 FROM jobs LEFT JOIN payloads ON payloads.id=jobs.id """
_REST = (
    "created_at", "updated_at", "due", "started_at", "ended_at", "beat_at", "token", "attempt", "retried", "stalled",
    "error", "progress", "jid", "amqp", "offered",
)  # fmt: skip
_get_rest = attrgetter(*_REST)


def is_inline(job: Tracked) -> bool:
    """Whether its data and output stand in its own row."""
    return len(job.data) + len(job.output) <= INLINE


def fixed_of(job: Tracked) -> tuple[Any, ...]:
    """The columns that a job keeps for life, in their order."""
    return job.id, job.queue, job.type, job.key, job.priority


def changing_of(job: Tracked) -> tuple[Any, ...]:
    """The other columns, in their order."""
    flags = None if job.flags is None else list(job.flags)
    rest = [*_get_rest(job), sparse(job.policy), list(job.tags), job.outcome, flags]
    payload = (job.data, job.output) if is_inline(job) else (None, None)
    offer = 1 if job.to_offer else None
    return (CODES[job.state], job.place, job.wake, job.worker, offer, orjson.dumps(rest).decode(), *payload)


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
