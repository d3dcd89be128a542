"""Durations and sizes as people write them: `1h15m5s`, `3w2d`, `0s`; `256kB`, `10MiB`."""

from __future__ import annotations

import re

_UNITS = {
    "ms": 0.001, "msec": 0.001, "millis": 0.001,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "days": 86_400.0,
    "w": 604_800.0, "week": 604_800.0, "weeks": 604_800.0,
    "M": 2_630_016.0, "month": 2_630_016.0, "months": 2_630_016.0,
    "y": 31_557_600.0, "year": 31_557_600.0, "years": 31_557_600.0,
}  # fmt: skip
_SHOWN = (("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_PART = re.compile(r"\s*([0-9]{1,18})\s*([A-Za-z]+)\s*")
_SIZE = re.compile(r"\s*([0-9]{1,15})\s*([kKMG]?)(i?)[bB]?\s*")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3}


def seconds(words: object) -> float:
    """A duration in seconds. Raises ValueError for what is none."""
    if not isinstance(words, str) or not words.strip():
        raise ValueError(f'{words!r} is no duration, such as "30s", "1h15m5s" or "0s"')
    total, at = 0.0, 0
    while at < len(words):
        part = _PART.match(words, at)
        if part is None or part[2] not in _UNITS:
            raise ValueError(f'{words!r} is no duration, such as "30s", "1h15m5s" or "0s"')
        total += int(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total


def duration(value: float) -> str:
    """Seconds as a person would write them; "0s" for none."""
    left = round(value * 1000)
    parts = []
    for unit, size in _SHOWN:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def size(words: object) -> int:
    """A size in bytes: `256kB` is 256,000, `10MiB` is 10 · 2^20. Raises ValueError for what is none."""
    part = _SIZE.fullmatch(words) if isinstance(words, str) else None
    if part is None or (part[3] and not part[2]):
        raise ValueError(f'{words!r} is no size, such as "256kB" or "10MiB"')
    return int(int(part[1]) * (1024 if part[3] else 1000) ** _POWERS[part[2]])
