"""Spreads of durations, and JSON set out for people: pure."""

from __future__ import annotations

import itertools
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import histogram
from amqpjobs.model.indented import indented
from amqpjobs.web.measures import COLUMNS, bars

micros = st.integers(0, 30 * 86_400 * 10**6)


@given(micros)
def test_a_duration_lies_in_its_bucket(duration: int) -> None:
    low, high = histogram.bounds(histogram.bucket(duration))
    assert low * (1 - 1e-9) <= duration / 1e6 <= max(high, 1e-6) * (1 + 1e-9)


@given(st.lists(micros, min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_right_to_a_fortieth_however_it_was_put_together(durations: list[int], q: float) -> None:
    whole: histogram.Histogram = {}
    for start in range(0, len(durations), 7):
        part: histogram.Histogram = {}
        for duration in durations[start : start + 7]:
            histogram.merge(part, {histogram.bucket(duration): 1})
        histogram.merge(whole, part)
    found = histogram.quantile(whole, q)
    exact = sorted(durations)[max(1, math.ceil(q * len(durations))) - 1] / 1e6
    assert found is not None
    assert abs(found - exact) <= max(0.025 * exact, 1.1e-6)


def test_no_duration_has_no_percentile() -> None:
    assert histogram.quantile({}, 0.5) is None
    assert bars({}) == []


@given(st.dictionaries(st.integers(0, 600), st.integers(1, 10**9), min_size=1))
def test_the_drawn_bars_hold_every_run_and_are_few(found: dict[int, int]) -> None:
    drawn = bars(found)
    assert sum(bar.jobs for bar in drawn) == sum(found.values())
    assert len(drawn) <= COLUMNS
    assert all(before.until == after.since for before, after in itertools.pairwise(drawn))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=25,
)


@given(values, st.booleans())
def test_what_is_set_out_is_the_same_json(value: object, ascii_only: bool) -> None:
    assert json.loads(indented(json.dumps(value, ensure_ascii=ascii_only))) == value


def test_digits_stay_as_they_came_and_short_lists_stay_on_their_line() -> None:
    told = '{"a":[1.10,1e400,  12345678901234567890],"b":{"c":[[]]}}'
    assert indented(told) == (
        '{\n  "a": [1.10, 1e400, 12345678901234567890],\n  "b": {\n    "c": [\n      []\n    ]\n  }\n}'
    )


@given(st.text())
def test_whatever_it_is_it_comes_out(text: str) -> None:
    assert "".join(indented(text).split()).replace('"', "") == "".join(text.split()).replace('"', "")
