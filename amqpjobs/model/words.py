"""What operators can do to jobs that wait: the word that people use, and what it means to the fold."""

from __future__ import annotations

import enum
from typing import NamedTuple

from amqpjobs.model import names


class Op(enum.StrEnum):
    """What a command asks for."""

    DELETE = "delete"
    TRIGGER = "trigger"
    RESCHEDULE = "reschedule"
    KILL = "kill"
    RESTORE = "restore"


class Verdict(enum.StrEnum):
    """What the fold says of one target of a command."""

    DONE = "done"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"


class Word(NamedTuple):
    """One action: the operation, the streams where it has a meaning, its past tense, and what comes of it."""

    op: Op
    streams: tuple[str, ...]
    past: str
    line: str


WORDS: dict[str, Word] = {
    "delete": Word(Op.DELETE, names.DELAYED, "deleted", "jobs that wait are taken out of their set, and never run"),
    "trigger": Word(Op.TRIGGER, (names.SCHEDULED,), "triggered", "scheduled jobs run now"),
    "reschedule": Word(
        Op.RESCHEDULE, (names.SCHEDULED, names.RETRIES), "rescheduled", "jobs that wait run at another time"
    ),
    "retry": Word(Op.TRIGGER, (names.RETRIES,), "retried", "failed jobs that wait for their next try run now"),
    "kill": Word(Op.KILL, (names.RETRIES,), "killed", "failed jobs are not tried again: they join the dead"),
    "requeue": Word(Op.TRIGGER, (names.DEAD,), "requeued", "dead jobs run again, from their first try"),
    "restore": Word(
        Op.RESTORE, names.DELAYED, "restored", "what was deleted waits again, while its stream still holds it"
    ),
}

SETS = {"scheduled": names.SCHEDULED, "retries": names.RETRIES, "dead": names.DEAD}
"""The delayed sets as people name them."""
