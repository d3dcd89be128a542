"""What foreign programs send, for the tests."""

from __future__ import annotations

import time
import uuid
from typing import Any


def job(cls: str = "SendEmailJob", **more: Any) -> dict[str, Any]:
    return {"jid": uuid.uuid4().hex, "class": cls, "args": [1], "queue": "default", "retry": 25, **more}


def scheduled(due_in: float = 3600.0, job_: dict[str, Any] | None = None) -> dict[str, Any]:
    inner = job_ or job()
    return {"type": "scheduled_job", "jid": inner["jid"], "scheduled_at": time.time() + due_in, "job": inner}


def retry(due_in: float = 3600.0, job_: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    inner = job_ or job()
    return {
        "type": "retry",
        "jid": inner["jid"],
        "retry_at": time.time() + due_in,
        "retry_count": 1,
        "failed_at": time.time(),
        "error_message": "no route to host",
        "error_class": "ConnectionError",
        "job": inner,
        **more,
    }


def dead(job_: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    inner = job_ or job()
    return {
        "type": "dead_job",
        "jid": inner["jid"],
        "died_at": time.time(),
        "retry_count": 25,
        "error_message": "Database connection failed",
        "error_class": "ConnectionError",
        "backtrace": "line1\nline2",
        "job": inner,
        **more,
    }


def heartbeat(nonce: str | None = None, **more: Any) -> dict[str, Any]:
    beat = {
        "type": "heartbeat",
        "identity": "worker-01:1:production",
        "hostname": "worker-01",
        "pid": 1,
        "tag": "production",
        "concurrency": 10,
        "busy": 3,
        "beat": time.time(),
        "rss_kb": 204800,
        "queues": ["critical", "default"],
        "version": "1.0.0",
        **more,
    }
    return beat if nonce is None else {**beat, "nonce": nonce}


def metric(status: str = "success", **more: Any) -> dict[str, Any]:
    return {
        "type": "job_metric",
        "timestamp": time.time(),
        "job_class": "SendEmailJob",
        "queue": "default",
        "duration_ms": 12,
        "status": status,
        "worker_identity": "worker-01:1:production",
        **more,
    }


def recurring(name: str, *, cls: str, at: float, **more: Any) -> dict[str, Any]:
    """A declaration of a recurring job."""
    return {"type": "recurring", "op": "declare", "name": name, "job": {"class": cls, "args": []}, "at": at} | more
