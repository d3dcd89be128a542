"""What a job is: reading what others wrote, and writing what became of it (docs/protocol.md, sections 4 to 8)."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

import pika

VERSION = "1.0.0"
MONTH = 30 * 86400.0
TRACKED = "it is tracked, and this worker takes no leases: workers of amqpjobs (Python) do"


class NotAJob(Exception):
    """Why a message cannot be run; it goes to `dead_jobs` as it came."""


@dataclass(frozen=True)
class Job:
    """A job as this worker understands it; `sent` is the object as it came, `raw` its text."""

    sent: dict[str, Any]
    raw: str
    jid: str
    job_class: str
    args: list[Any] | dict[str, Any]
    queue: str
    retry: int
    retry_count: int
    enqueued_at: float | None


def read_job(body: bytes, queue: str, message_id: str | None) -> Job:
    try:
        raw = body.decode("utf-8-sig").strip()
        sent = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise NotAJob(f"not JSON: {error}") from None
    if not isinstance(sent, dict):
        raise NotAJob(f"a job is an object, not a {type(sent).__name__}")
    if not isinstance(sent.get("class"), str) or not sent["class"]:
        raise NotAJob("no class")
    args = [] if sent.get("args") is None else sent["args"]
    if not isinstance(args, list | dict):
        raise NotAJob("args is neither a list nor an object")
    if name(sent.get("queue")) is None:  # a retry must lead back to where it came from
        raw = f'{raw[:-1]},"queue":{json.dumps(queue)}}}'
    return Job(
        sent=sent,
        raw=raw,
        jid=name(sent.get("jid")) or message_id or secrets.token_hex(12),
        job_class=sent["class"],
        args=args,
        queue=name(sent.get("queue")) or queue,
        retry=whole(sent.get("retry"), 25),
        retry_count=whole(sent.get("retry_count"), 0),
        enqueued_at=number(sent.get("enqueued_at")),
    )


def name(value: object) -> str | None:
    """A string that is not empty; a number is its digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return value if isinstance(value, str) and value else None


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        read = float(value)
    except OverflowError:
        return None
    return read if abs(read) < float("inf") else None


def whole(value: object, default: int) -> int:
    """A count between 0 and 1000: the whole part of a number, also one in text; false is none."""
    if value is False:
        return 0
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", value, re.ASCII) else None
    if value is True or not isinstance(value, int | float) or (isinstance(value, float) and math.isnan(value)):
        return default
    return int(max(0, min(1000, value)))


def tracked(job: Job) -> bool:
    """Whether a worker needs a lease to run it (docs/tracked.md). Without one, two could run it at once."""
    return job.sent.get("track") is True or name(job.sent.get("key")) is not None


def expired(job: Job) -> bool:
    """Whether it waited in its queue for longer than it may."""
    limit = number(job.sent.get("expires_in"))
    return bool(limit and limit > 0 and job.enqueued_at is not None and time.time() > job.enqueued_at + limit)


def backoff(job: Job) -> float:
    """Seconds until the next try (section 6)."""
    count, sent = job.retry_count, job.sent
    delays = sent.get("retry_delays")
    if isinstance(delays, list) and delays:
        delay = number(delays[min(count, len(delays) - 1)]) or 0.0
    elif (least := number(sent.get("min_backoff"))) is not None or number(sent.get("max_backoff")) is not None:
        most = number(sent.get("max_backoff"))
        delay = min((1.0 if least is None else least) * 2.0 ** min(count, 64), MONTH if most is None else most)
    else:
        delay = count**4 + 15 + random.uniform(0, 30 * (count + 1))
    return max(0.0, min(MONTH, delay))


@dataclass(frozen=True)
class Failure:
    """A failed run, in the words of an entry."""

    error_class: str
    message: str
    backtrace: str


def failed(
    job: Job, failure: Failure, at: float, identity: str, properties: pika.BasicProperties
) -> tuple[str, str] | None:
    """The stream and the entry of a failed run: tried again, dead, or (None) discarded."""
    entry: dict[str, Any] = {
        "jid": job.jid,
        "failed_at": at,
        "attempt": job.retry_count + 1,
        "error_class": failure.error_class,
        "error_message": failure.message,
        "backtrace": failure.backtrace,
        "worker_identity": identity,
        "properties": kept(properties),
    }
    if job.retry_count < job.retry:
        entry |= {"type": "retry", "retry_at": at + backoff(job), "retry_count": job.retry_count + 1}
        return "retries", with_job(entry, job)
    if job.sent.get("dead") is False:
        return None
    return "dead_jobs", with_job(entry | {"type": "dead_job", "died_at": at, "retry_count": job.retry_count}, job)


def with_job(entry: dict[str, Any], job: Job) -> str:
    """The entry with the job spliced in as it came: not one digit changes on its way."""
    return f'{json.dumps(entry)[:-1]},"job":{job.raw}}}'


def kept(properties: pika.BasicProperties) -> dict[str, Any]:
    """What of a delivery's properties must be there again when the job is released."""
    scalars = {
        name: value
        for name, value in (properties.headers or {}).items()
        if isinstance(value, str | int | float | bool) and not name.startswith("x-")
    }
    found = {"priority": properties.priority, "correlation_id": properties.correlation_id, "headers": scalars}
    return {name: value for name, value in found.items() if value not in (None, {})}


def unreadable(body: bytes, queue: str, error: NotAJob, identity: str) -> str:
    """The `dead_jobs` entry of what is no job."""
    entry: dict[str, Any] = {
        "type": "dead_job",
        "jid": secrets.token_hex(12),
        "died_at": time.time(),
        "retry_count": 0,
        "error_class": "Malformed",
        "error_message": str(error),
        "worker_identity": identity,
        "queue": queue,
    }
    try:
        return json.dumps(entry | {"raw": body.decode("utf-8")})
    except UnicodeDecodeError:
        return json.dumps(entry | {"raw_base64": base64.b64encode(body).decode("ascii")})


def metric(job: Job, status: str, started: float, ended: float, identity: str, *, error_class: str | None) -> str:
    """The `job_metrics` entry of a run, or of a job that was taken and not run."""
    entry = {
        "type": "job_metric",
        "timestamp": ended,
        "jid": job.jid,
        "job_class": job.job_class,
        "queue": job.queue,
        "duration_ms": max(0.0, ended - started) * 1000,
        "status": status,
        "worker_identity": identity,
        "attempt": job.retry_count + 1,
        "wait_ms": None if job.enqueued_at is None else max(0.0, started - job.enqueued_at) * 1000,
        "error_class": error_class,
        "code_version": VERSION,
    }
    return json.dumps(entry)
