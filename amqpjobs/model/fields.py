"""What a member's value means: the one place for DESIGN section 3's table of odd values. Total: nothing raises."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from amqpjobs.model import backoff, text
from amqpjobs.model.messages import DEFAULT_RETRIES, MAX_RETRIES

EARLIEST = -62_135_596_800.0
LATEST = 253_402_300_799.0
"""The years 1 and 9999: every time that is read can be shown."""

_MILLISECONDS = 1e11
"""From here on (the year 5138 in seconds, 1973 in milliseconds) a number counts milliseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_CORRELATION_BYTES = 255
_HEADER_BYTES = 128


class Problem(str):
    """Why a value cannot be read."""

    __slots__ = ()


def instant(value: Any) -> float | Problem:
    """A time in seconds since 1970.

    A number counts seconds, from 1e11 on milliseconds; a string is an ISO-8601 date with a time of day (UTC where it
    names no zone). What lies before the year 1 is held there: it is over anyway.
    """
    if not isinstance(value, (int, float, str)):
        return Problem(f"{shown(value)} is no time")
    seconds = _iso_seconds(value) if isinstance(value, str) else _number_seconds(value)
    if isinstance(seconds, Problem):
        return seconds
    return max(EARLIEST, seconds) if seconds <= LATEST else Problem(f"{shown(value)} is after the year 9999")


def instant_or_none(value: Any) -> float | None:
    """A time that is only kept for the record: None where it cannot be read."""
    if value is None or (type(value) is float and 0 <= value < _MILLISECONDS):
        return value
    seconds = instant(value)
    return None if isinstance(seconds, Problem) else seconds


def number(value: Any) -> float | None:
    """A number, also one in a string ("5"); infinities stay, integers too large for a float become one. None else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    if not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # only an int overflows
    return None if math.isnan(found) else found


def held(value: Any, least: int, most: int) -> int | None:
    """The whole part of a number, held between the two; None for what is no number."""
    if type(value) is int:
        return min(max(least, value), most)
    found = number(value)
    return None if found is None else int(min(max(float(least), found), float(most)))


def retries(value: Any) -> int:
    """`retry`: how often a job is tried again; the default where it does not say."""
    if value is None:
        return DEFAULT_RETRIES
    if type(value) is int and 0 <= value <= MAX_RETRIES:
        return value
    if value is False:
        return 0
    number_of = held(value, 0, MAX_RETRIES)
    return DEFAULT_RETRIES if number_of is None else number_of


def count(value: Any) -> int:
    """`retry_count`, `stall_count`: between 0 and 1000; 0 for what is no number."""
    if value is None:
        return 0
    if type(value) is int and 0 <= value <= MAX_RETRIES:
        return value
    return held(value, 0, MAX_RETRIES) or 0


def whole(value: Any) -> int | None:
    """A figure for the record, not negative and within 53 bits; None for what is no number."""
    return held(value, 0, 2**53)


def priority(value: Any) -> int | None:
    """Between 0 and 10; None for what is no number."""
    return held(value, 0, 10)


def backtrace_lines(value: Any) -> int | bool | None:
    """`backtrace`: true, false, or a number of lines."""
    return value if isinstance(value, bool) else held(value, 0, 1_000_000)


def duration(value: Any) -> float | None:
    """Seconds, more than none and finite; None otherwise."""
    found = number(value)
    return found if found is not None and 0 < found < math.inf else None


def wait(value: Any) -> float | None:
    """Seconds to wait, held between 0 and the longest delay; None for what is no number."""
    found = number(value)
    return None if found is None else backoff.hold(found)


def waits(value: Any) -> list[float] | None:
    """`retry_delays`: the numbers of the list; None when there is none."""
    if not isinstance(value, list):
        return None
    return [seconds for seconds in map(wait, value) if seconds is not None] or None


def name(value: Any) -> str | None:
    """A string that is not empty, or a number's digits; None otherwise. Safe to encode."""
    if isinstance(value, str):
        return text.safe(value) or None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return text.dump(value).decode()
    return None


def words(value: Any) -> str:
    """Text for people: a string as it is, nothing for null, the JSON of anything else. Safe to encode."""
    if isinstance(value, str):
        return text.safe(value)
    return "" if value is None else text.dump(text.strict(value)).decode()


def words_or_none(value: Any) -> str | None:
    """Text for people, None for null."""
    return None if value is None else words(value)


def tags(value: Any) -> list[str]:
    """The strings and numbers of a list; a string alone is one tag."""
    if isinstance(value, list):
        return [tag for each in value if (tag := name(each)) is not None]
    tag = name(value)
    return [] if tag is None else [tag]


def mapping(value: Any) -> dict[str, Any] | None:
    """An object as it is; None otherwise."""
    return value if isinstance(value, dict) else None


def properties(value: Any) -> dict[str, Any]:
    """The AMQP properties that travel in an entry, as far as AMQP can carry them."""
    if not isinstance(value, dict):
        return {}
    headers = value.get("headers")
    found = {
        "priority": priority(value.get("priority")),
        "correlation_id": _short(value.get("correlation_id"), _CORRELATION_BYTES),
        "headers": _headers(headers) if isinstance(headers, dict) else None,
    }
    return {key: each for key, each in found.items() if each is not None and each != {}}


def shown(value: Any) -> str:
    """The value for an error message: its JSON, cut short."""
    spelled = text.dump(text.strict(value)).decode()
    return spelled if len(spelled) <= 80 else spelled[:79] + "…"


def _headers(value: dict[str, Any]) -> dict[str, Any]:
    named = ((_short(key, _HEADER_BYTES), each) for key, each in value.items() if _is_scalar(each))
    return {key: text.safe(each) if isinstance(each, str) else each for key, each in named if key is not None}


def _short(value: Any, limit: int) -> str | None:
    """Safe text of at most `limit` bytes; None for anything else."""
    if not isinstance(value, str):
        return None
    found = text.safe(value)
    return found if len(found.encode()) <= limit else None


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, str)


def _number_seconds(value: float) -> float | Problem:
    seconds = number(value)
    if seconds is None or (math.isinf(seconds) and isinstance(value, float)):
        return Problem(f"{shown(value)} is no time")
    return seconds / 1000 if seconds >= _MILLISECONDS else seconds


def _iso_seconds(value: str) -> float | Problem:
    if not _ISO.fullmatch(value):
        return Problem(f"{shown(value)} is no ISO-8601 date with a time of day")
    try:
        moment = datetime.fromisoformat(value.upper())
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (aware - _EPOCH) / timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        return Problem(f"{shown(value)}: {error}")
