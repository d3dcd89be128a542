"""Strict reading of an entry's members: what is not what it should be raises TypeError or ValueError."""

from __future__ import annotations

import math

MAX_NUMBER = 2**63 - 1
"""The greatest term, sequence number and offset: SQLite keeps no greater integer."""


def line(value: object) -> str:
    """A string, empty or not, that SQLite takes."""
    if not isinstance(value, str):
        raise TypeError
    if not value.isascii():
        value.encode()  # a lone surrogate would stop SQLite, and with it every view, for ever
    return value


def text(value: object) -> str:
    """A string that is not empty."""
    if not value:
        raise ValueError
    return line(value)


def whole(value: object) -> int:
    """An integer from 0 to MAX_NUMBER."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError
    return value


def number(value: object) -> float:
    """A finite number."""
    if type(value) is not float and (not isinstance(value, (int, float)) or isinstance(value, bool)):
        raise TypeError
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def ids(value: object) -> tuple[str, ...]:
    """A list of identities."""
    if not isinstance(value, list):
        raise TypeError
    return tuple(text(item) for item in value)
