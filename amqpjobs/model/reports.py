"""Reading what workers report of themselves and of each run: heartbeats and metrics. Total, like all reading."""

from __future__ import annotations

import math
from typing import Any

from amqpjobs.model import fields, names, text
from amqpjobs.model.fields import Problem
from amqpjobs.model.messages import Heartbeat, JobMetric, RunningJob, Unreadable

STATES = ("running", "quiet", "stopping", "stopped")
PAUSED = "paused"
"""A process that cannot begin jobs says why: `paused: the stream job_metrics cannot be written`."""
LONGEST_STATE = 200

STATUSES = ("success", "failed", "expired", "cancelled")
"""What a metric may say became of a job; the last two were taken from their queue and not run."""


def read_heartbeat(value: Any) -> Heartbeat | Unreadable:
    """A sign of life; only its `identity` must be there (or the `hostname` and `pid` that it is made of)."""
    if not isinstance(value, dict):
        return _refused(value, "a heartbeat is an object")
    identity = fields.name(value.get("identity"))
    hostname, pid = fields.name(value.get("hostname")), fields.whole(value.get("pid"))
    tag = fields.name(value.get("tag")) or ""
    if identity is None and (hostname is None or pid is None):
        return _refused(value, "identity: there is none")
    return Heartbeat.trusted(
        {
            "identity": identity or f"{hostname}:{pid}:{tag}",
            "nonce": fields.name(value.get("nonce")),
            "hostname": hostname or (identity or "").partition(":")[0],
            "pid": pid,
            "tag": tag,
            "concurrency": fields.whole(value.get("concurrency")) or 0,
            "busy": fields.whole(value.get("busy")) or 0,
            "beat": fields.instant_or_none(value.get("beat")),
            "boot_at": fields.instant_or_none(value.get("boot_at")),
            "rss_kb": fields.whole(value.get("rss_kb")),
            "queues": fields.tags(value.get("queues")),
            "version": fields.words(value.get("version")),
            "state": _state(value.get("state")),
            "running": _running(value.get("running")),
        }
    )


def read_metric(value: Any) -> JobMetric | Unreadable:
    """One run of a job; `timestamp`, `job_class` and `status` must be there and readable."""
    if not isinstance(value, dict):
        return _refused(value, "a metric is an object")
    timestamp = fields.instant(value.get("timestamp"))
    if isinstance(timestamp, Problem):
        return _refused(value, f"timestamp: {timestamp}")
    job_class, status = fields.name(value.get("job_class")), value.get("status")
    if job_class is None:
        return _refused(value, "job_class: there is none")
    if status not in STATUSES:
        return _refused(value, f"status: {fields.shown(status)} is none of {', '.join(STATUSES)}")
    return JobMetric.trusted(
        {
            "timestamp": timestamp,
            "job_class": job_class,
            "queue": fields.name(value.get("queue")) or names.DEFAULT_QUEUE,
            "duration_ms": _milliseconds(value.get("duration_ms")),
            "status": status,
            "worker_identity": fields.name(value.get("worker_identity")) or "",
            "jid": fields.name(value.get("jid")),
            "attempt": fields.whole(value.get("attempt")),
            "wait_ms": _milliseconds(value.get("wait_ms")),
            "error_class": fields.words_or_none(value.get("error_class")),
            "code_version": fields.words_or_none(value.get("code_version")),
        }
    )


def _state(value: Any) -> str:
    if isinstance(value, str) and (value in STATES or value.startswith(PAUSED)):
        return text.safe(value)[:LONGEST_STATE]
    return "running"


def _running(value: Any) -> list[RunningJob]:
    jobs = value if isinstance(value, list) else []
    return [_running_job(job) for job in jobs if isinstance(job, dict)]


def _running_job(job: dict[str, Any]) -> RunningJob:
    return RunningJob.trusted(
        {
            "jid": fields.name(job.get("jid")) or "",
            "cls": fields.words(job.get("class")),
            "queue": fields.name(job.get("queue")) or names.DEFAULT_QUEUE,
            "started_at": fields.instant_or_none(job.get("started_at")),
        }
    )


def _milliseconds(value: Any) -> float | None:
    found = fields.number(value)
    return max(0.0, found) if found is not None and math.isfinite(found) else None


def _refused(value: Any, problem: str) -> Unreadable:
    return Unreadable("Malformed", problem, text.dump(value))
