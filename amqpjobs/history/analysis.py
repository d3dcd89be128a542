"""What a span of time says: versions that made classes slower, hours that are busy, errors that come together.

Each finding has a probability: that of seeing at least so much where there is nothing. It is corrected for the number
of questions of its kind (Holm): of a hundred classes where nothing changed, one would be found at 1 %.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from amqpjobs.history import queries
from amqpjobs.history.buckets import Bucket, median
from amqpjobs.history.pieces import HOUR, Piece, cut, source
from amqpjobs.history.reader import UTC, History
from amqpjobs.history.store import Store

SIGNIFICANT = 0.01
LEAST_RUNS = 20
"""Of each version, for a comparison."""
LEAST_CHANGE = 0.05
"""A median that moves less is no news: buckets are as wide."""
KINDS = 60
"""Kinds of errors, the most frequent, that are looked at in pairs."""


class Change(NamedTuple):
    """A class under its newest code version, and under the one before."""

    cls: str
    before: str
    after: str
    since: float
    """The hour of the newer one's first run."""
    runs_before: int
    runs_after: int
    median_before_ms: float
    median_after_ms: float
    failed_before: float
    failed_after: float
    """Shares of the runs, 0 to 1."""
    p_run: float
    p_failed: float

    @property
    def slower(self) -> bool:
        """Whether runs take longer, not by chance."""
        return self._moved and self.median_after_ms > self.median_before_ms

    @property
    def faster(self) -> bool:
        """Whether runs take less, not by chance."""
        return self._moved and self.median_after_ms < self.median_before_ms

    @property
    def fails_more(self) -> bool:
        """Whether more of the runs fail, not by chance."""
        return self.p_failed < SIGNIFICANT and self.failed_after > self.failed_before

    @property
    def _moved(self) -> bool:
        ratio = self.median_after_ms / self.median_before_ms if self.median_before_ms else math.inf
        return self.p_run < SIGNIFICANT and abs(ratio - 1) >= LEAST_CHANGE


class Together(NamedTuple):
    """Two kinds of errors that happened in the same hours: (class, error class, fingerprint) of each."""

    one: tuple[str | None, str | None, str]
    other: tuple[str | None, str | None, str]
    hours_one: int
    hours_other: int
    both: int
    expected: float
    """Hours with both, were they independent."""
    p: float


class _Version(NamedTuple):
    first: float
    runs: int
    failed: int
    histogram: list[Bucket]


def changes(history: History, since: float, until: float) -> list[Change]:
    """Each class whose code version changed in the span: its last two versions, the most certain findings first."""
    compared = []
    for cls, versions in _versions(history.store, since, until).items():
        known = sorted(versions.items(), key=lambda item: item[1].first)[-2:]
        if len(known) == 2 and all(version.runs >= LEAST_RUNS for _, version in known):
            compared.append(_compared(cls, *known))
    corrected = zip(
        compared,
        holm([each.p_run for each in compared]),
        holm([each.p_failed for each in compared]),
        strict=True,
    )
    found = [each._replace(p_run=run, p_failed=failed) for each, run, failed in corrected]
    return sorted(found, key=lambda each: (min(each.p_run, each.p_failed), each.cls))


def _versions(store: Store, since: float, until: float) -> dict[str, dict[str, _Version]]:
    """By class and version. Whole hours."""
    found: dict[str, dict[str, _Version]] = {}
    span = (since // HOUR * HOUR, math.ceil(until / HOUR) * HOUR)
    hours, coarse = source(store, [Piece("metrics_hour", "hour", *span)]), source(store, cut("metrics", *span))
    if hours is None or coarse is None:
        return {}
    for cls, name, first, runs, failed in store.rows(queries.VERSIONS.format(t=hours), []):
        found.setdefault(cls, {})[name] = _Version(first, int(runs), int(failed), [])
    for cls, name, *bucket in store.rows(queries.VERSION_BUCKETS.format(t=coarse), []):
        found[cls][name].histogram.append(Bucket(*(int(each) for each in bucket)))
    return found


def _compared(cls: str, older: tuple[str, _Version], newer: tuple[str, _Version]) -> Change:
    (before, old), (after, new) = older, newer
    return Change(
        cls,
        before,
        after,
        new.first,
        old.runs,
        new.runs,
        median(old.histogram) / 1000,
        median(new.histogram) / 1000,
        old.failed / old.runs,
        new.failed / new.runs,
        rank_sum(_counts(old.histogram), _counts(new.histogram)),
        proportions(old.failed, old.runs, new.failed, new.runs),
    )


def _counts(histogram: Iterable[Bucket]) -> dict[int, int]:
    return {each.bucket: each.n for each in histogram}


def rank_sum(one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """The two-sided probability of Mann and Whitney's test on two histograms (bucket: count), by its normal form.

    Those in one bucket are ties. 1.0 where nothing can be said.
    """
    n, m = sum(one.values()), sum(other.values())
    below = ties = u = 0.0
    for bucket in sorted(one.keys() | other.keys()):
        here, there = one.get(bucket, 0), other.get(bucket, 0)
        u += there * (below + here / 2)
        below += here
        ties += (here + there) ** 3 - (here + there)
    total = n + m
    if n == 0 or m == 0 or total < 2:
        return 1.0
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    return 1.0 if variance <= 0 else _two_sided((u - n * m / 2) / math.sqrt(variance))


def proportions(failed: int, runs: int, failed_after: int, runs_after: int) -> float:
    """The two-sided probability that two shares of failures differ so much by chance (pooled, normal)."""
    pooled = (failed + failed_after) / (runs + runs_after)
    variance = pooled * (1 - pooled) * (1 / runs + 1 / runs_after)
    return 1.0 if variance <= 0 else _two_sided((failed_after / runs_after - failed / runs) / math.sqrt(variance))


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def holm(probabilities: Sequence[float]) -> list[float]:
    """The probabilities, corrected for how many questions were asked (Holm)."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    corrected, least = [0.0] * len(order), 0.0
    for place, index in enumerate(order):
        least = max(least, min(1.0, probabilities[index] * (len(order) - place)))
        corrected[index] = least
    return corrected


def together(history: History, since: float, until: float) -> list[Together]:
    """Pairs of the most frequent kinds of errors that share more hours than chance explains, the surest first."""
    store = history.store
    table = source(store, [Piece("errors_hour", "hour", since // HOUR * HOUR, until)])
    rows = [] if table is None else store.rows(queries.FAILED_HOURS.format(t=table), [KINDS])
    hours = max(1, round((until - since) / HOUR))
    found = []
    for (*one, mine), (*other, theirs) in itertools.combinations(rows, 2):
        both = len(set(mine) & set(theirs))
        p = coincidence(hours, len(mine), len(theirs), both)
        expected = len(mine) * len(theirs) / hours
        found.append(Together(_kind(one), _kind(other), len(mine), len(theirs), both, expected, p))
    corrected = holm([each.p for each in found])
    sure = [each._replace(p=p) for each, p in zip(found, corrected, strict=True) if p < SIGNIFICANT]
    return sorted(sure, key=lambda each: (each.p, -each.both))


def _kind(told: Sequence[str | None]) -> tuple[str | None, str | None, str]:
    cls, error_class, fingerprint = told
    return cls, error_class, fingerprint or ""


def coincidence(hours: int, one: int, other: int, both: int) -> float:
    """The probability that two sets of so many of the `hours` share `both` or more (hypergeometric)."""
    most = min(one, other)
    terms = [_log_choose(one, k) + _log_choose(hours - one, other - k) for k in range(both, most + 1)]
    return min(1.0, sum(math.exp(term - _log_choose(hours, other)) for term in terms))


def _log_choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def week(history: History, since: float, until: float, zone: ZoneInfo = UTC) -> list[list[float]]:
    """Runs an hour, on average, by weekday (Monday first) and hour of the day of `zone`."""
    runs = [[0] * 24 for _ in range(7)]
    for point in history.series(since, until, "hour", zone=zone):
        local = datetime.datetime.fromtimestamp(point.at, zone)
        runs[local.weekday()][local.hour] += point.runs
    hours = [[0] * 24 for _ in range(7)]
    for number in range(math.ceil((until - since) / HOUR)):
        local = datetime.datetime.fromtimestamp(since + number * HOUR, zone)
        hours[local.weekday()][local.hour] += 1
    return [[count / max(1, of) for count, of in zip(*pair, strict=True)] for pair in zip(runs, hours, strict=True)]
