"""The one lenient reader. Total: each input is a job, an entry, or an `Unreadable` with the bytes; none raises."""

from __future__ import annotations

from typing import Any, NamedTuple

from amqpjobs.model import fields, names, text
from amqpjobs.model.fields import Problem
from amqpjobs.model.intake import MALFORMED, UNSET, build_job, first_name, read_job
from amqpjobs.model.messages import DeadJob, Job, RetryEntry, ScheduledJob, Unreadable
from amqpjobs.model.outcomes import unkept
from amqpjobs.model.reports import read_heartbeat, read_metric

__all__ = [
    "UNSET",
    "Piece",
    "Problem",
    "pieces",
    "read_dead",
    "read_heartbeat",
    "read_instant",
    "read_job",
    "read_metric",
    "read_retry",
    "read_scheduled",
    "values",
]

REJECTED = "Rejected"


read_instant = fields.instant


class Piece(NamedTuple):
    """One entry of a stream message: its place in the message, its bytes, its value."""

    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody asks an entry for
    raw: bytes
    value: Any


def pieces(body: bytes) -> list[Piece] | Unreadable:
    """The entries of a stream message: one object, or an array of entries (an empty one is nothing)."""
    try:
        if text.bare(body)[:1] == b"[":
            return [Piece(index, raw, value) for index, (raw, value) in enumerate(text.entries(body))]
        value = text.parse(body, depth=text.ENTRY_DEPTH - 1)
    except text.NotJson as error:
        return Unreadable(MALFORMED, f"not JSON: {error}", body)
    if not isinstance(value, dict):
        return Unreadable(MALFORMED, f"neither an object nor an array: {fields.shown(value)}", body)
    return [Piece(0, text.bare(body), value)]


def values(body: bytes) -> list[Any] | Unreadable:
    """The values of the entries of a stream message, for streams whose bytes travel no further."""
    try:
        value = text.parse(body, depth=text.ENTRY_DEPTH)
    except text.NotJson as error:
        return Unreadable(MALFORMED, f"not JSON: {error}", body)
    if isinstance(value, (dict, list)):
        return value if isinstance(value, list) else [value]
    return Unreadable(MALFORMED, f"neither an object nor an array: {fields.shown(value)}", body)


def routed(exchange: str) -> bool:
    """Whether a message of the enqueue log, by its exchange, is a job itself: the broker put it there, no client."""
    return exchange in (names.JOBS_EXCHANGE, names.LOG_EXCHANGE)


def read_scheduled(piece: Piece, *, jid: str) -> ScheduledJob | Unreadable:
    """An entry of `scheduled_jobs`; `jid` is its name when neither it nor its job has one."""
    found = _entry(piece, jid, "scheduled_at")
    if isinstance(found, Unreadable):
        return found
    job, job_raw, due = found
    return ScheduledJob.trusted(
        {
            "jid": job.jid,
            "due": due,
            "reschedule": piece.value.get("reschedule") is True,
            "job": job,
            "job_raw": job_raw,
            "raw": piece.raw,
            "properties": fields.properties(piece.value.get("properties")),
        }
    )


def read_retry(piece: Piece, *, jid: str) -> RetryEntry | Unreadable:
    """An entry of `retries`; `jid` is its name when neither it nor its job has one."""
    found = _entry(piece, jid, "retry_at")
    if isinstance(found, Unreadable):
        return found
    job, job_raw, due = found
    entry = piece.value
    tried = fields.held(entry.get("retry_count"), 0, 1000)
    return RetryEntry.trusted(
        {
            "jid": job.jid,
            "due": due,
            # without a count of its own, one more than its job's: otherwise it could fail for ever
            "retry_count": min(job.retry_count + 1, 1000) if tried is None else tried,
            "attempt": fields.whole(entry.get("attempt")),
            "job": job,
            "job_raw": job_raw,
            **_failure(piece),
        }
    )


def read_dead(piece: Piece, *, jid: str) -> DeadJob | Unreadable:
    """An entry of `dead_jobs`: a dead job, or the record of bytes that are no job (then `original` is set)."""
    entry = piece.value
    if not isinstance(entry, dict):
        return _refused(piece, jid, "an entry is an object")
    if "died_at" not in entry and "job" not in entry and "class" in entry:
        return _refused(piece, jid, "a worker rejected this job without a record of why", error_class=REJECTED)
    died_at = _died_at(entry)
    if isinstance(died_at, Problem):
        return _refused(piece, jid, f"died_at: {died_at}")
    job, job_raw, original = _remains(piece, jid)
    if job is None and original is None:
        return _refused(piece, jid, "neither a job nor the bytes of one")
    return DeadJob.trusted(
        {
            "jid": job.jid if job else first_name(entry.get("jid"), jid),
            "died_at": died_at,
            "retry_count": fields.count(entry.get("retry_count")),
            "job": job,
            "job_raw": job_raw,
            "original": original,
            "queue": job.queue if job else fields.name(entry.get("queue")),
            "origin": fields.name(entry.get("origin")),
            **_failure(piece),
        }
    )


def _died_at(entry: dict[str, Any]) -> float | Problem:
    """When it died, or at least when it failed: a foreign worker's odd time must not keep its job from a retry."""
    died_at = fields.instant(entry.get("died_at"))
    failed_at = fields.instant(entry.get("failed_at"))
    return failed_at if isinstance(died_at, Problem) and not isinstance(failed_at, Problem) else died_at


def _remains(piece: Piece, jid: str) -> tuple[Job | None, bytes | None, bytes | None]:
    """Of a dead record: the job and its bytes, or else the bytes that are no job; nothing at all is possible too."""
    if piece.value.get("job") is None:
        return None, None, unkept(piece.value)
    inner = _inner_job(piece, jid)
    if isinstance(inner, Unreadable):
        return None, None, text.member(piece.raw, "job")
    return *inner, None


def _entry(piece: Piece, jid: str, time_member: str) -> tuple[Job, bytes, float] | Unreadable:
    """What the entries of both delayed streams have: a job, its bytes, and a time."""
    if not isinstance(piece.value, dict):
        return _refused(piece, jid, "an entry is an object")
    inner = _inner_job(piece, jid)
    if isinstance(inner, Unreadable):
        return inner
    due = fields.instant(piece.value.get(time_member))
    if isinstance(due, Problem):
        return _refused(piece, jid, f"{time_member}: {due}")
    return *inner, due


def _inner_job(piece: Piece, jid: str) -> tuple[Job, bytes] | Unreadable:
    """The job in an entry and its bytes. It goes by the entry's jid, which may be the only one."""
    value = piece.value.get("job")
    if not isinstance(value, dict):
        return _refused(piece, jid, f"its job is no object: {fields.shown(value)}")
    raw = text.member(piece.raw, "job") or b""
    named = value.get("queue")
    queue = names.DEFAULT_QUEUE if named is None else _queue_text(named)
    job = build_job(raw, value, queue=queue, jid=first_name(piece.value.get("jid"), value.get("jid"), jid))
    return _refused(piece, jid, job.error_message) if isinstance(job, Unreadable) else (job, raw)


def _queue_text(value: Any) -> str:
    """What is to be a queue's name, for `release` to judge: what is no text must not look like a good name."""
    if isinstance(value, str):
        return text.safe(value)
    return fields.name(value) or f"not a name: {fields.shown(value)}"


def _failure(piece: Piece) -> dict[str, Any]:
    """The members that entries of `retries` and of `dead_jobs` share."""
    entry = piece.value
    return {
        "failed_at": fields.instant_or_none(entry.get("failed_at")),
        "error_message": fields.words(entry.get("error_message")),
        "error_class": fields.words(entry.get("error_class")),
        "backtrace": fields.words_or_none(entry.get("backtrace")),
        "worker_identity": fields.words_or_none(entry.get("worker_identity")),
        "raw": piece.raw,
        "properties": fields.properties(entry.get("properties")),
    }


def _refused(piece: Piece, jid: str, problem: str, *, error_class: str = MALFORMED) -> Unreadable:
    """An entry that is none, with what can be told of its job."""
    entry = piece.value if isinstance(piece.value, dict) else {}
    inner = entry.get("job")
    job = inner if isinstance(inner, dict) else entry
    cls = job.get("class")
    return Unreadable(
        error_class,
        problem,
        piece.raw,
        first_name(entry.get("jid"), job.get("jid"), jid),
        fields.name(job.get("queue")),
        text.safe(cls) if isinstance(cls, str) else None,
    )
