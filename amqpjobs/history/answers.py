"""What the history answers. Times are seconds since 1970 (UTC), durations milliseconds."""

from __future__ import annotations

from typing import Any, NamedTuple


class Point(NamedTuple):
    """What ran in a minute, hour or day that begins at `at`. `quantiles`: of the run time, as they were asked."""

    at: float
    runs: int
    failed: int
    retried: int
    """Runs that were not their job's first."""
    run_ms: float
    """All run times together."""
    run_max_ms: float | None
    wait_ms: float
    wait_max_ms: float | None
    quantiles: tuple[float | None, ...] = ()


class ClassSums(NamedTuple):
    """What ran of one class on one queue; the quantiles are of the run time. None where no run told its duration."""

    cls: str
    queue: str
    runs: int
    failed: int
    run_mean_ms: float | None
    wait_mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None


class ErrorGroup(NamedTuple):
    """Failures of one kind: how many, how many of them final, the hour of the last, and one of the jobs."""

    cls: str | None
    queue: str | None
    error_class: str | None
    fingerprint: str
    failures: int
    dead: int
    last_hour: float
    jid: str | None
    error_message: str | None


class LifeEvent(NamedTuple):
    """Something that is on record of one job. `what`: a run's status, or an entry's type; `details` what it told."""

    at: float | None
    what: str
    where: str
    """The stream that said it."""
    details: dict[str, Any]
