"""Kue's priorities: names for its numbers, of which less is sooner, and what they are in AMQP, where more is sooner."""

from __future__ import annotations

NAMES = {"low": 10, "normal": 0, "medium": -5, "high": -10, "critical": -15}

_STEPS = ((10, 0), (5, 1), (1, 2), (0, 3), (-4, 4), (-5, 5), (-9, 6), (-10, 7), (-14, 8), (-15, 9))
"""From this number on, this priority: each name has its own, and what lies between two of them lies between theirs."""
HIGHEST = 10


def to_amqp(priority: int) -> int:
    """The AMQP priority, 0 to 10, of one of Kue's: low 0, normal 3, medium 5, high 7, critical 9."""
    return next((amqp for least, amqp in _STEPS if priority >= least), HIGHEST)


def from_amqp(priority: int | None) -> int:
    """The number that stands for an AMQP priority; a job without one is as any other."""
    if priority is None:
        return NAMES["normal"]
    return next((least for least, amqp in _STEPS if priority <= amqp), NAMES["critical"] - 1)
