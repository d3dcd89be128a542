"""What a figure is made of: medians, spreads, percentiles, and the rate in the steady middle of a run."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

FIRST, LAST = 0.15, 0.90
"""The part of a run that counts: before it workers start and fill their prefetch, after it they run dry."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several runs, with the lowest and the highest."""

    median: float
    low: float
    high: float
    runs: int

    @property
    def spread(self) -> float:
        """Half the distance between lowest and highest, as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0

    def as_json(self) -> dict[str, Any]:
        """For the file of results."""
        return asdict(self)


def figure(values: Sequence[float]) -> Figure:
    """Of at least one value."""
    return Figure(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all are not above. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def steady_rate(samples: Sequence[tuple[float, float]]) -> float:
    """Jobs a second in the middle of a run, of (seconds, jobs done so far) in order of time.

    Raises ValueError where too little was seen of that middle to tell.
    """
    total = samples[-1][1] if samples else 0.0
    if total <= 0:
        raise ValueError("no job was done")
    begin, end = reached(samples, FIRST * total), reached(samples, LAST * total)
    if end - begin < 3 * longest_gap(samples, begin, end):
        raise ValueError("the run was too short to be measured: more jobs are needed")
    return (LAST - FIRST) * total / (end - begin)


def reached(samples: Sequence[tuple[float, float]], jobs: float) -> float:
    """When so many jobs were done, between the samples by a straight line."""
    before = samples[0]
    for sample in samples:
        if sample[1] >= jobs:
            gained = sample[1] - before[1]
            share = (jobs - before[1]) / gained if gained > 0 else 1.0
            return before[0] + share * (sample[0] - before[0])
        before = sample
    raise ValueError(f"{jobs:g} jobs were never done")


def longest_gap(samples: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """The longest time in which nobody looked between these moments: how wrong their distance may be."""
    times = [time for time, _ in samples]
    gaps = [after - before for before, after in itertools.pairwise(times) if after > begin and before < end]
    return max(gaps, default=0.0)
