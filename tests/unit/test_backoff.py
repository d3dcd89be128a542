from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import backoff
from amqpjobs.model.messages import Job

JITTER = st.floats(0, 1, exclude_max=True)
COUNTS = st.integers(0, 1000)


def job(**members: Any) -> Job:
    return Job(jid="a", cls="A", **members)


@given(COUNTS, JITTER)
def test_the_fourth_power_and_a_growing_jitter_up_to_thirty_days(count: int, jitter: float) -> None:
    least = count**4 + 15
    seconds = backoff.delay(job(), count, jitter)
    assert min(least, 30 * 86400) <= seconds <= min(least + 30 * (count + 1), 30 * 86400)


def test_the_first_waits() -> None:
    assert [backoff.delay(job(), count, 0.0) for count in range(4)] == [15, 16, 31, 96]
    assert [backoff.delay(job(), count, 0.5) for count in range(4)] == [30, 46, 76, 156]


@pytest.mark.parametrize(("count", "seconds"), [(0, 1), (1, 5), (2, 0), (3, 0), (1000, 0)])
def test_given_delays_and_the_last_one_repeats(count: int, seconds: float) -> None:
    assert backoff.delay(job(retry_delays=[1, 5, 0]), count, 0.9) == seconds


@pytest.mark.parametrize(
    ("least", "most", "waits"),
    [
        (2, 10, [2, 4, 8, 10, 10]),
        (2, None, [2, 4, 8, 16, 32]),
        (None, 3, [1, 2, 3, 3, 3]),
        (20, 10, [10, 10, 10, 10, 10]),
        (0, 10, [0, 0, 0, 0, 0]),
    ],
)
def test_doubling_between_bounds(least: float | None, most: float | None, waits: list[float]) -> None:
    bounded = job(min_backoff=least, max_backoff=most)
    assert [backoff.delay(bounded, count, 0.9) for count in range(5)] == waits
    assert backoff.delay(bounded, 1000, 0.9) == (30 * 86400 if most is None else waits[-1])


def test_delays_count_before_bounds() -> None:
    assert backoff.delay(job(retry_delays=[7], min_backoff=1), 3, 0.0) == 7


@given(st.floats())
def test_every_wait_is_held(seconds: float) -> None:
    assert 0 <= backoff.hold(seconds) <= backoff.MAX_DELAY
