"""The words for what became of a job: the entries that are recorded of it, and the line in the log."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Literal

from amqpjobs.model import names, outcomes, text
from amqpjobs.model.messages import Job, Unreadable
from amqpjobs.model.unwrapped import PREFIX
from amqpjobs.streams.port import Properties
from amqpjobs.worker.outcomes import Record
from amqpjobs.worker.run import Ended, Run

log = logging.getLogger("amqpjobs.worker")

_NOT_THE_JOBS = (
    "x-death",
    "x-first-death-",
    "x-last-death-",
    "x-delivery-count",
    "x-acquired-count",
    "x-stream-",
    PREFIX,
)
"""Headers of one message's way, not of the job: the broker's, and those that say what a message of a stream is."""
LEASE_LOST = "LeaseLost"
"""The error class of a run that ended after its lease had."""
NO_CLASS = "(unreadable)"
"""The class that a failure is counted under when the message told none."""


class Reporter:
    """Writes as the process `worker` (`hostname:pid:tag`), of the given version of the user's code.

    `fit` tells how many bytes an entry may have: words are cut to that, a job never is.
    """

    def __init__(self, worker: str, code_version: str | None, fit: Callable[[], int] = lambda: outcomes.FIT) -> None:
        self._worker = worker
        self._code_version = code_version
        self._fit = fit

    def ended(self, run: Run, ended: Ended, properties: Properties, now: float, jitter: float) -> list[Record]:
        """The records of a run that ended at `now`; `jitter`, in [0, 1), spreads retries of what failed together."""
        extra = {"jid": run.job.jid}
        if run.cancelled:
            log.info("%s ended after it was cancelled", run.job.cls, extra=extra)
            return [self._metric(run, None, "cancelled")]
        if ended.snooze is not None:
            log.info("%s snoozed for %g s", run.job.cls, ended.snooze, extra=extra)
            return [self._snoozed(run.job, ended.snooze, properties, now)]
        if ended.failure is None:
            return self.succeeded(run)
        outcome = outcomes.failed(
            run.job,
            ended.failure,
            now=now,
            jitter=jitter,
            worker=self._worker,
            properties=_travelling(properties),
            fit=self._fit(),
        )
        _log_failure(run, ended.failure, outcome.what)
        metric = self._metric(run, ended.failure.error_class, "failed")
        if outcome.stream is None or outcome.entry is None:
            return [metric]
        return [(outcome.stream, outcome.entry), metric]

    def leased(self, run: Run, ended: Ended, *, lost: bool) -> list[Record]:
        """The record of a run of a tracked job, whose life is told elsewhere; `lost`: its end came too late."""
        if lost:
            return [self._metric(run, LEASE_LOST, "failed")]
        if ended.failure is None or run.cancelled:
            status: Literal["success", "cancelled"] = "cancelled" if run.cancelled else "success"
            return [] if ended.snooze is not None else [self._metric(run, None, status)]
        name, message = ended.failure.error_class, ended.failure.error_message
        log.warning("%s failed: %s: %.500s", run.job.cls, name, message, extra={"jid": run.job.jid})
        return [self._metric(run, name, "failed")]

    def succeeded(self, run: Run) -> list[Record]:
        """The record of a run that ended well."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s done in %.1f ms", run.job.cls, 1000 * run.passed, extra={"jid": run.job.jid})
        return [self._metric(run, None, "success")]

    def unreadable(self, bad: Unreadable, queue: str, now: float) -> list[Record]:
        """The records of a message that is no job: it is dead, and counts as failed."""
        jid = bad.jid or ""
        log.warning(
            "a message from queue %s is no job: %s: %s", queue, bad.error_class, bad.error_message, extra={"jid": jid}
        )
        entry = outcomes.unreadable(bad, now=now, jid=jid, queue=queue, worker=self._worker)
        metric = self._line(jid, bad.cls or NO_CLASS, queue, now) | {"status": "failed", "error_class": bad.error_class}
        return [(names.DEAD, entry), (names.METRICS, text.dump(metric))]

    def expired(self, job: Job, now: float) -> list[Record]:
        """The record of a job that waited too long in its queue and was not run."""
        log.info("%s expired: it waited longer than %g s", job.cls, job.expires_in, extra={"jid": job.jid})
        return [self._not_run(job, "expired", now)]

    def cancelled(self, job: Job, now: float) -> list[Record]:
        """The record of a job that was cancelled before it was taken."""
        log.info("%s was cancelled: it is not run", job.cls, extra={"jid": job.jid})
        return [self._not_run(job, "cancelled", now)]

    def _not_run(self, job: Job, status: str, now: float) -> Record:
        return names.METRICS, text.dump(self._line(job.jid, job.cls, job.queue, now) | {"status": status})

    def _metric(self, run: Run, error_class: str | None, status: Literal["success", "failed", "cancelled"]) -> Record:
        metric = outcomes.metric(
            run.job,
            status=status,
            started_at=run.context.started_at,
            duration_ms=round(1000 * run.passed, 3),
            worker=self._worker,
            error_class=error_class,
            code_version=self._code_version,
        )
        return names.METRICS, text.dump(metric)

    def _line(self, jid: str, cls: str, queue: str, now: float) -> dict[str, Any]:
        """A metric of a job that was not run."""
        line = {"type": "job_metric", "timestamp": now, "jid": jid, "job_class": cls, "queue": queue, "duration_ms": 0}
        return line | {"worker_identity": self._worker}

    def _snoozed(self, job: Job, delay: float, properties: Properties, now: float) -> Record:
        """The job itself, waiting again; a repeat (after a lost ack) replaces the first."""
        entry = {
            "type": "scheduled_job",
            "jid": job.jid,
            "scheduled_at": now + max(0.0, delay),
            "reschedule": True,
            "properties": _travelling(properties),
            "job": text.Verbatim(job.raw),
        }
        return names.SCHEDULED, text.dump(entry)


def _travelling(properties: Properties) -> dict[str, Any]:
    """The AMQP properties that survive every hop. Floats that JSON cannot hold do not."""
    kept: dict[str, Any] = {}
    if properties.priority is not None:
        kept["priority"] = properties.priority
    if properties.correlation_id is not None:
        kept["correlation_id"] = properties.correlation_id
    headers = {
        name: value
        for name, value in properties.headers.items()
        if not name.startswith(_NOT_THE_JOBS) and not (isinstance(value, float) and not math.isfinite(value))
    }
    return kept | ({"headers": headers} if headers else {})


def _log_failure(run: Run, failure: outcomes.Failure, what: str) -> None:
    becomes = {"retry": "it is tried again", "dead": "it is dead", "discarded": "it is discarded"}[what]
    log.warning(
        "%s failed (try %d): %s: %.500s; %s",
        run.job.cls,
        run.context.attempt,
        failure.error_class,
        failure.error_message,
        becomes,
        extra={"jid": run.job.jid},
    )
