"""What this project wants to reach, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Results = Mapping[str, Any]
"""By scenario, as benchmarks/results/latest.json holds them."""

FLAT = 1.10
"""Memory at the end against that after the second tenth: the first ones fill caches and pools."""


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table. `value` raises KeyError, IndexError or ZeroDivisionError where nothing was measured."""

    figure: str
    unit: str
    bound: Literal["at least", "at most", "under"]
    limit: float
    value: Callable[[Results], float]

    def rate(self, results: Results) -> Rating:
        """How it stands."""
        try:
            value = self.value(results)
        except (KeyError, IndexError, TypeError, ZeroDivisionError):
            return Rating(self, None, None)
        met = {"at least": value >= self.limit, "at most": value <= self.limit, "under": value < self.limit}
        return Rating(self, value, met[self.bound])


@dataclass(frozen=True, slots=True)
class Rating:
    """A target beside what was measured; both None where it was not."""

    target: Target
    value: float | None
    met: bool | None


def median(results: Results, scenario: str, *path: str) -> float:
    """The median of one figure. Raises KeyError where it was not measured."""
    found = results[scenario]["figures"]
    for each in path:
        found = found[each]
    return float(found["median"])


def no_op(results: Results, product: str, workers: int = 2) -> float:
    """No-op jobs a second of a product."""
    return median(results, "noop", product, "workers", str(workers), "rate")


def _times(peer: str, ours: str = "ours-lean") -> Callable[[Results], float]:
    return lambda results: no_op(results, ours) / no_op(results, peer)


def _of_the_yardstick(results: Results) -> float:
    """Percent of the trial's rate where it ran, of our own yardstick's otherwise."""
    measured = results["noop"]["figures"]
    there = "trial" if "2" in measured.get("trial", {}).get("workers", {}) else "yardstick"
    return 100 * _times(there)(results)


def _of_ideal(results: Results) -> float:
    return 100 * median(results, "async", "rate") / float(results["async"]["figures"]["ideal"])


def _of_the_pool(results: Results) -> float:
    return 100 * median(results, "threads", "rate") / median(results, "threads", "bare")


def _growth(results: Results) -> float:
    points = results["memory"]["figures"]["points"]
    return float(points[-1]["rss_mb"] / points[1]["rss_mb"])


def _more_channels(results: Results) -> float:
    first, last = results["memory"]["figures"]["channels"]
    return float(last - first)


def _figure(scenario: str, *path: str) -> Callable[[Results], float]:
    return lambda results: median(results, scenario, *path)


TARGETS = (
    Target("no-op jobs, 2 worker processes", "jobs/s", "at least", 10_000, lambda found: no_op(found, "ours-lean")),
    Target("… against Sidekiq", "×", "at least", 1.5, _times("sidekiq")),
    Target("… against Dramatiq", "×", "at least", 5, _times("dramatiq")),
    Target("… against Celery (threads)", "×", "at least", 6, _times("celery")),
    Target("… quorum queues against Sidekiq", "×", "at least", 1.5, _times("sidekiq", "ours-quorum")),
    Target("… quorum queues against Dramatiq", "×", "at least", 5, _times("dramatiq", "ours-quorum")),
    Target("… quorum queues against Celery (threads)", "×", "at least", 6, _times("celery", "ours-quorum")),
    Target("… queues without priorities, as Sidekiq's are", "×", "at least", 1.5, _times("sidekiq", "ours-plain")),
    Target("… queues without priorities, as Dramatiq's are", "×", "at least", 5, _times("dramatiq", "ours-plain")),
    Target("… queues without priorities, as Celery's are", "×", "at least", 6, _times("celery", "ours-plain")),
    Target("… of the yardstick (the trial where it ran)", "%", "at least", 70, _of_the_yardstick),
    Target("`enqueue_many`, one process", "jobs/s", "at least", 12_000, _figure("enqueue", "lean", "many")),
    Target("`enqueue`, one by one, p50", "ms", "under", 3, _figure("enqueue", "lean", "single_p50_ms")),
    Target("enqueue to start at 200 jobs/s, p50", "ms", "at most", 3, _figure("latency", "lean", "p50_ms")),
    Target("enqueue to start at 200 jobs/s, p99", "ms", "at most", 10, _figure("latency", "lean", "p99_ms")),
    Target("10 ms async jobs, 100 at a time, of the ideal rate", "%", "at least", 90, _of_ideal),
    Target("1 ms sync jobs, of what a bare thread pool does", "%", "at least", 80, _of_the_pool),
    Target("memory over a million jobs, end against begin", "×", "at most", FLAT, _growth),
    Target("channels opened over a million jobs", "", "at most", 0, _more_channels),
    Target("worker, from its start to its first job", "s", "under", 1, _figure("start", "lean", "seconds")),
)
