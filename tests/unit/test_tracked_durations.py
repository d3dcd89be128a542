"""Durations and sizes as Ocypod writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model.tracked_durations import duration, seconds, size


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("30s", 30), ("5m", 300), ("1h15m5s", 4505), ("3w2d", 23 * 86_400), ("1w2d7h", 9 * 86_400 + 7 * 3600),
        ("0s", 0), ("500ms", 0.5), ("1h 15m", 4500), ("2 days", 172_800),
    ],
)  # fmt: skip
def test_durations(words: str, expected: float) -> None:
    assert seconds(words) == expected


@pytest.mark.parametrize("words", ["", " ", "5", "m", "5 parsecs", "-5s", "1.5h", None, 5, True, "5s!"])
def test_what_is_no_duration(words: Any) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds(words)


@given(st.integers(0, 10**11))
def test_a_duration_is_read_as_it_is_shown(milliseconds: int) -> None:
    assert round(seconds(duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(("words", "expected"), [("256kB", 256_000), ("10MiB", 10 * 2**20), ("7", 7), ("1GB", 10**9)])
def test_sizes(words: str, expected: int) -> None:
    assert size(words) == expected


@pytest.mark.parametrize("words", ["", "big", "-1kB", "1XB", 5, "1iB"])
def test_what_is_no_size(words: Any) -> None:
    with pytest.raises(ValueError, match="is no size"):
        size(words)
