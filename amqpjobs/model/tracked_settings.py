"""The settings of a queue or of one job, as they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from amqpjobs.model import values
from amqpjobs.model.tracked import Policy

MOST_SECONDS = 100 * 365 * 86_400.0
"""The longest duration: times stay times."""
MOST_RETRIES = 1000


def policy_of(base: Policy, given: Mapping[str, Any]) -> Policy:
    """`base` with what is given; durations in seconds. Raises TypeError or ValueError for what cannot be."""
    if not given:
        return base
    if not isinstance(given, Mapping):
        raise TypeError("settings are an object")
    items = tuple(given.items())
    try:
        return _known(base, items, tuple(type(value) for _, value in items))
    except TypeError:  # a list cannot be looked up
        return _changed(base, given)


@lru_cache(1000)
def _known(base: Policy, items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> Policy:
    """Most jobs of a queue say the same. Their types tell `true` from 1."""
    return _changed(base, dict(items))


def _changed(base: Policy, given: Mapping[str, Any]) -> Policy:
    unknown = given.keys() - set(Policy._fields)
    if unknown:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}")
    changes: dict[str, Any] = {name: _SETTINGS[name](value) for name, value in given.items() if value is not None}
    return base._replace(**changes)


def _seconds(value: object) -> float:
    found = values.number(value)
    if not 0 <= found <= MOST_SECONDS:
        raise ValueError(f"{found} is no duration in seconds")
    return found


def _count(value: object) -> int:
    found = values.whole(value)
    if found > MOST_RETRIES:
        raise ValueError(f"more than {MOST_RETRIES}")
    return found


def _delays(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_RETRIES:
        raise TypeError("not a list of durations")
    return tuple(map(_seconds, value))


_SETTINGS: Mapping[str, Callable[[object], Any]] = {
    "timeout": _seconds,
    "heartbeat_timeout": _seconds,
    "expires_after": _seconds,
    "retries": _count,
    "retry_delays": _delays,
    "min_backoff": _seconds,
    "max_backoff": _seconds,
    "max_stalls": _count,
}
