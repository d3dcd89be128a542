"""Whatever JSON can hold, for property tests: NaN, infinities, huge integers, lone surrogates and all."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import strategies as st

from amqpjobs.model import reading, text
from amqpjobs.model.messages import Job

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


PLAIN = {"jid": "a1", "class": "SendEmailJob", "args": [1, "x"], "queue": "default", "retry": 25}

NEVER = [
    ABSENT,
    None,
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    "1800000000",
    "1.5",
    "soon",
    "",
    "2024-05-06",
    "20240506",
    "2024-13-06T07:08:09Z",
    "2024-05-06T25:08:09Z",
    "2024-05-06T07:08:60Z",
    "2024-05-06T07:08:09+25:00",
    "٢٠٢٤-05-06T07:08:09Z",
    "\ud800",
    [],
    {},
    [0],
    1e300,
    10**400,
    253_402_300_800_000,
]

"""What is no time."""

JOBS = objects(
    **{
        "class": maybe(st.just("SendEmailJob")),
        "args": maybe(st.one_of(st.lists(VALUES, max_size=3), st.dictionaries(ANY_TEXT, VALUES, max_size=3))),
        "queue": maybe(st.sampled_from(["default", "low", "a/b"])),
        "meta": maybe(st.dictionaries(ANY_TEXT, VALUES, max_size=2)),
        "retry_delays": maybe(st.lists(VALUES, max_size=3)),
        "tags": maybe(st.lists(VALUES, max_size=3)),
        **{
            name: maybe(st.just(1))
            for name in (
                *("jid", "retry", "retry_count", "enqueued_at", "created_at", "backtrace", "priority", "timeout"),
                *("min_backoff", "max_backoff", "expires_in", "dead", "track", "key", "stall_count"),
            )
        },
    }
)


def safe_words(*words: str | None) -> None:
    for each in words:
        assert each is None or each.encode().decode() == each


def check_job(found: Job) -> None:
    """What everyone relies on in a job that was read."""
    Job.model_validate(found.model_dump(by_alias=True) | {"raw": found.raw})
    safe_words(found.jid, found.cls, found.queue, found.key, *found.tags)
    assert found.jid
    for seconds in (found.timeout, found.expires_in):
        assert seconds is None or 0 < seconds < math.inf
    for seconds in (found.min_backoff, found.max_backoff, *(found.retry_delays or [])):
        assert seconds is None or 0 <= seconds <= 30 * 86400
    assert 0 <= found.stall_count <= 1000
    json.dumps(text.strict(found.model_dump(by_alias=True)), allow_nan=False).encode()


def pieces(body: bytes) -> list[reading.Piece]:
    found = reading.pieces(body)
    assert isinstance(found, list), found
    return found
