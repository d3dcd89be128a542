"""Jobs finished a second, as they are reported: what the live chart draws. Pure; times are arguments."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

STEP = 5.0
"""Seconds that one bar stands for, and that the figure beside the chart looks back."""
BARS = 60
"""Bars kept: five minutes."""


class Bar(NamedTuple):
    """What was reported in one step."""

    ran: int
    failed: int


class Rate(NamedTuple):
    """Jobs a second over the last step, and the failed ones among them."""

    ran: float
    failed: float


class _Sample(NamedTuple):
    at: float
    ran: int
    failed: int


class Throughput:
    """Differences of ever-growing totals, sampled about once a second. A total that shrank begins anew."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._steps: dict[int, Bar] = {}

    def sample(self, at: float, ran: int, failed: int) -> None:
        """Take the totals as they stand at `at` (steady seconds)."""
        now = _Sample(at, ran, failed)
        if self._samples and ran < self._samples[-1].ran:
            self.pause()
        if self._samples:
            self._draw(self._samples[-1], now)
        self._samples.append(now)
        while len(self._samples) > 2 and self._samples[1].at <= at - STEP:
            self._samples.popleft()

    def pause(self) -> None:
        """Forget where the counts stood: what arrives in one heap after a gap did not happen in one second."""
        self._samples.clear()

    def rate(self) -> Rate | None:
        """Over the last step; None until two samples are there."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        span = last.at - first.at
        return Rate((last.ran - first.ran) / span, (last.failed - first.failed) / span) if span > 0 else None

    def bars(self, at: float) -> list[Bar | None]:
        """The BARS steps that ended last before `at`, oldest first; None for a step that was not watched."""
        current = int(at // STEP)
        return [self._steps.get(step) for step in range(current - BARS, current)]

    def _draw(self, before: _Sample, now: _Sample) -> None:
        step = int(now.at // STEP)
        bar = self._steps.get(step, Bar(0, 0))
        self._steps[step] = Bar(bar.ran + now.ran - before.ran, bar.failed + now.failed - before.failed)
        for old in [each for each in self._steps if each < step - BARS]:
            del self._steps[old]


def ceiling(bars: Sequence[Bar | None]) -> float:
    """A round figure in jobs a second that no bar passes: the top of the chart's axis. At least 1."""
    highest = max((bar.ran for bar in bars if bar is not None), default=0) / STEP
    power = 10.0 ** math.floor(math.log10(max(highest, 1.0)))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if highest <= step * power)
