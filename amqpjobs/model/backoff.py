"""How long a failed job waits for its next run."""

from __future__ import annotations

from amqpjobs.model.messages import Job

MAX_DELAY = 30 * 86400.0
"""Seconds: no retry is further away, whatever the count. It is as long as the `retries` stream keeps an entry."""

_DOUBLINGS = 64
"""2**64 of any unit passes MAX_DELAY; a float overflows at 2**1024."""


def delay(job: Job, retry_count: int, jitter: float) -> float:
    """Seconds from the failure of a run with this `retry_count` (0 for the first) to the next; at most 30 days.

    `retry_delays` (the last one repeats) or `min_backoff`/`max_backoff` (doubling) say it; otherwise it is
    count⁴ + 15 and up to 30·(count + 1) more by `jitter`, in [0, 1).
    """
    return hold(_uncapped(job, retry_count, jitter))


def hold(seconds: float) -> float:
    """The delay held between none and the longest; one that is no number counts as none."""
    return min(max(0.0, seconds), MAX_DELAY)


def _uncapped(job: Job, count: int, jitter: float) -> float:
    if job.retry_delays:
        return job.retry_delays[min(count, len(job.retry_delays) - 1)]
    if job.min_backoff is not None or job.max_backoff is not None:
        return _doubling(job.min_backoff, job.max_backoff, count)
    return float(count**4 + 15 + jitter * 30 * (count + 1))


def _doubling(least: float | None, most: float | None, count: int) -> float:
    first = 1.0 if least is None else least
    return min(first * 2.0 ** min(count, _DOUBLINGS), MAX_DELAY if most is None else most)
