"""The clock that every loop is given, so that tests can turn it by hand.

`wall` is for what is written down (seconds since 1970, UTC, may jump); `steady` is for how long
something took or may take (seconds, never goes back). Mixing them up is how a clock set back an hour
stops a scheduler or yields a negative duration.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What loops need of time."""

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC; follows the system clock, jumps included."""
        ...

    def steady(self) -> float:
        """Seconds since some fixed point; only ever grows."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many steady seconds (at once when not positive)."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def steady(self) -> float:
        """Seconds since some fixed point; only ever grows."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many steady seconds."""
        await asyncio.sleep(max(0.0, seconds))
