"""Durations as counts in logarithmic buckets: they merge by addition, and tell any percentile within 2.5 %. Pure.

Bucket 0 holds up to 1 µs; bucket n, what is longer than 1.05ⁿ⁻¹ µs and not longer than 1.05ⁿ µs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

BASE = 1.05
_LOG = math.log(BASE)

Histogram = dict[int, int]
"""How many in each bucket; empty ones are left out."""


def bucket(micros: int) -> int:
    """The bucket of a duration in microseconds."""
    return 0 if micros <= 1 else math.ceil(math.log(micros) / _LOG - 1e-9)


def bounds(index: int) -> tuple[float, float]:
    """From and up to how many seconds a bucket holds."""
    return (0.0 if index <= 0 else BASE ** (index - 1) / 1e6, BASE**index / 1e6)


def merge(into: Histogram, other: Mapping[int, int]) -> None:
    """Add the counts of another."""
    for index, count in other.items():
        into[index] = into.get(index, 0) + count


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """The duration in seconds that a share `q` (0 to 1) of all does not exceed; None when there are none.

    It is the middle of the bucket that the one asked for lies in.
    """
    total = sum(histogram.values())
    rank = max(1, math.ceil(q * total))
    for index in sorted(histogram):
        rank -= histogram[index]
        if rank <= 0:
            return 0.0 if index == 0 else BASE ** (index - 0.5) / 1e6
    return None
