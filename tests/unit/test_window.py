"""The prefetch follows the rate of the jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.worker.window import MOST, PATIENCE, Window


def test_slow_jobs_are_not_hoarded() -> None:
    window = Window(20)
    assert {window.review(settled, 0.25) for settled in (0, 1, 10, 50)} == {20}


def test_quick_jobs_are_fetched_a_tenth_of_a_second_ahead() -> None:
    window = Window(20)
    assert window.review(1000, 0.25) == 640, "4,000 a second: 400 of them, in steps of two"
    assert window.review(5000, 0.25) == MOST


def test_it_narrows_once_the_jobs_were_slow_for_some_time() -> None:
    window = Window(20)
    window.review(5000, 0.25)
    assert [window.review(5, 0.25) for _ in range(PATIENCE)] == [MOST] * (PATIENCE - 1) + [20]


def test_a_moment_without_jobs_changes_nothing() -> None:
    window = Window(20)
    window.review(5000, 0.25)
    for _ in range(10):
        assert window.review(0, 0.25) == MOST
        assert window.review(4000, 0.25) == MOST


@given(st.integers(1, 3000), st.lists(st.integers(0, 10_000), max_size=30))
def test_it_stays_between_its_bounds(least: int, counts: list[int]) -> None:
    window = Window(least)
    for settled in counts:
        assert least <= window.review(settled, 0.25) <= max(least, MOST)
