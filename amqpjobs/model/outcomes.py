"""What a worker writes about a run: the entry of a failure, the record of what could not be read, the metric.

An entry is the bytes of one JSON object. The job is spliced into it as it came, so that thirty retries do not make it
any longer, and not one digit of it changes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from amqpjobs.model import backoff, names, text
from amqpjobs.model.messages import Job, Unreadable

FIT = 15 * 1024 * 1024
"""Bytes that an entry should not pass where the broker's own limit is not known: RabbitMQ from 4.0 on takes 16 MiB a
message, and closes the channel beyond."""

CUT = "\n… cut to fit …"
"""What marks a backtrace or message that was cut."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed. `final`: no more retries. `retry_in`: seconds to the next run, in place of the backoff."""

    error_class: str
    error_message: str
    backtrace: str
    final: bool = False
    retry_in: float | None = None


class Outcome(NamedTuple):
    """Where a failure is written, and what. A discarded job is written nowhere (it counts as failed all the same).

    `entry` is larger than what was to fit only when the job alone is: see `unwrapped`.
    """

    stream: str | None
    entry: bytes | None
    what: Literal["retry", "dead", "discarded"]


def failed(
    job: Job,
    failure: Failure,
    *,
    now: float,
    jitter: float,
    worker: str,
    properties: Mapping[str, Any],
    fit: int = FIT,
) -> Outcome:
    """What becomes of a job whose run failed at `now`: tried again, dead, or discarded.

    An entry of more than `fit` bytes has its backtrace cut, and then its message.
    """
    again = not failure.final and job.retry_count < job.retry
    if not again and not job.dead:
        return Outcome(None, None, "discarded")
    head = _retry(job, failure, now=now, jitter=jitter) if again else _dead(job, now=now)
    entry = _fit({**head, **_tail(job, failure, now=now, worker=worker, properties=properties)}, fit)
    return Outcome(names.RETRIES, entry, "retry") if again else Outcome(names.DEAD, entry, "dead")


def unreadable(bad: Unreadable, *, now: float, jid: str, queue: str | None, worker: str) -> bytes:
    """The `dead_jobs` entry for what could not be read: its bytes as text in `raw`, or in `raw_base64`.

    `jid` and `queue` are used where the bytes themselves told none.
    """
    entry = {
        "type": "dead_job",
        "jid": bad.jid or text.safe(jid),
        "died_at": now,
        "failed_at": now,
        "retry_count": 0,
        "error_class": bad.error_class,
        "error_message": text.safe(bad.error_message),
        "backtrace": "",
        "worker_identity": text.safe(worker),
        "queue": bad.queue or queue,
        "class": bad.cls,
        **kept(bad.raw),
    }
    return text.dump({name: value for name, value in entry.items() if value is not None})


def metric(
    job: Job,
    *,
    status: Literal["success", "failed", "cancelled"],
    started_at: float,
    duration_ms: float,
    worker: str,
    error_class: str | None = None,
    code_version: str | None = None,
) -> dict[str, Any]:
    """The `job_metrics` entry of a run that began at `started_at` (wall clock) and took `duration_ms` (steady)."""
    entry: dict[str, Any] = {
        "type": "job_metric",
        "timestamp": started_at + duration_ms / 1000,
        "jid": job.jid,
        "job_class": job.cls,
        "queue": job.queue,
        "duration_ms": duration_ms,
        "status": status,
        "worker_identity": worker,
        "attempt": job.retry_count + 1,
    }
    if job.enqueued_at is not None:  # two machines' clocks: a wait below zero only says that they differ
        entry["wait_ms"] = max(0.0, (started_at - job.enqueued_at) * 1000)
    if error_class is not None:
        entry["error_class"] = error_class
    if code_version is not None:
        entry["code_version"] = code_version
    return entry


def _retry(job: Job, failure: Failure, *, now: float, jitter: float) -> dict[str, Any]:
    wait = backoff.delay(job, job.retry_count, jitter) if failure.retry_in is None else backoff.hold(failure.retry_in)
    return {"type": "retry", "jid": job.jid, "retry_at": now + wait, "retry_count": job.retry_count + 1}


def _dead(job: Job, *, now: float) -> dict[str, Any]:
    return {"type": "dead_job", "jid": job.jid, "died_at": now, "retry_count": job.retry_count}


def _tail(job: Job, failure: Failure, *, now: float, worker: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The members that both kinds of entries share."""
    entry: dict[str, Any] = {
        "failed_at": now,
        "error_class": text.safe(failure.error_class),
        "error_message": text.safe(failure.error_message),
        "backtrace": _lines(text.safe(failure.backtrace), job.backtrace),
        "attempt": job.retry_count + 1,
        "worker_identity": text.safe(worker),
    }
    if properties:
        entry["properties"] = dict(properties)
    entry["job"] = text.Verbatim(_whole(job))  # last, where readers find it quickest
    return entry


def _fit(entry: dict[str, Any], fit: int) -> bytes:
    """The entry's bytes; its backtrace is cut to what fits, and then its message."""
    for member in ("backtrace", "error_message", "error_class"):
        written = text.dump(entry)
        if len(written) <= fit:
            return written
        if len(entry[member]) > len(CUT):
            entry[member] = _cut(entry[member], len(written) - fit)
    return text.dump(entry)


def _whole(job: Job) -> bytes:
    """The job's bytes with its jid and queue in them: the entry must lead back to the queue that it came from."""
    return job.raw if job.complete else text.with_members(job.raw, {"jid": job.jid, "queue": job.queue})


def _lines(backtrace: str, keep: int | bool | None) -> str:
    """The innermost lines, as many as the job asks for."""
    if keep is None or keep is True:
        return backtrace
    return "\n".join(backtrace.splitlines()[-keep:]) if keep else ""


def _cut(words: str, excess: int) -> str:
    """The beginning of the text, shorter by `excess` bytes as it is written; only the marker if need be."""
    room = len(text.dump(words)) - excess - len(text.dump(CUT))
    while words and len(text.dump(words)) - 2 > room:
        words = words[: max(0, min(len(words) - 1, len(words) * room // len(text.dump(words))))]
    return words + CUT


def kept(raw: bytes) -> dict[str, str]:
    """The members that keep bytes in a record: text, or base64 where they are none or grow (control characters)."""
    try:
        plain = raw.decode()
    except UnicodeDecodeError:
        plain = None
    if plain is not None and len(text.dump(plain)) <= len(raw) * 4 // 3 + 1000:
        return {"raw": plain}
    return {"raw_base64": base64.b64encode(raw).decode()}


def unkept(members: Mapping[str, Any]) -> bytes | None:
    """The bytes that `kept` made members of; None when there are none."""
    plain, encoded = members.get("raw"), members.get("raw_base64")
    if isinstance(plain, str):
        return plain.encode("utf-8", "surrogatepass")
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        return None
