"""What fits a message, by what the broker says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping

MIB = 1024 * 1024
BEFORE_4 = 128 * MIB
SINCE_4 = 16 * MIB
"""RabbitMQ's own limits, of the body alone. A larger publish closes the channel. Of others the smaller is assumed."""

_SPARE = 4096
"""What an appender adds to an entry (`from`, `seq`), with room to spare."""


def largest_message(server: Mapping[str, str], lowered: int | None = None) -> int:
    """The largest body in bytes that a broker takes; `lowered` is a setting of ours that allows less."""
    limit = _usual(server.get("product", ""), server.get("version", ""))
    return limit if lowered is None else min(limit, lowered)


@functools.lru_cache  # it is asked for with each message
def _usual(product: str, version: str) -> int:
    major = version.partition(".")[0]
    return BEFORE_4 if product == "RabbitMQ" and major.isdigit() and int(major) < 4 else SINCE_4


def largest_entry(limit: int) -> int:
    """What one entry may have, of a message of `limit` bytes."""
    return limit - min(_SPARE, limit // 4)
