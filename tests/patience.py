"""How long the tests wait: by what a wait means, never by what this machine needs."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 90.0
"""Seconds that a condition may take on the slowest machine. A test that passes never waits so long."""

SOON = 8.0
"""Seconds in which somebody acts who was told. What only looks for news looks every ten seconds, with the heartbeat."""


async def until(predicate: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first true value of a predicate, which may be async. Raises AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {inspect.getsource(predicate).strip()}")
        await asyncio.sleep(0.02)
