"""Whatever JSON can hold, for property tests: NaN, infinities, huge integers, lone surrogates and all."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import strategies as st

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    ANY_TEXT,
    st.sampled_from(["5", "2.7", "-1", "1e9", "1e999", "NaN", "1800000000", "2024-05-06T07:08:09Z", "soon", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=8,
)
ABSENT = object()


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The value, anything else, or no such member."""
    return st.one_of(values, VALUES, st.just(ABSENT))


def objects(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these members, and others that nobody knows."""
    known = st.fixed_dictionaries(dict(members)).map(lambda found: {k: v for k, v in found.items() if v is not ABSENT})
    return st.tuples(st.dictionaries(ANY_TEXT, VALUES, max_size=2), known).map(lambda both: both[0] | both[1])


def written(value: Any) -> bytes:
    """Its JSON by the standard library, so that no test depends on the code that it tests."""
    return json.dumps(value).encode()


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal, NaN to NaN, and 1 not to 1.0 nor to true."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    return bool(left == right)
