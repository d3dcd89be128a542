"""Our jobs for the benchmarks: `python -m amqpjobs.worker -A benchmarks.jobs`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from amqpjobs import current, job
from benchmarks.apps import measured


@job
async def noop(*arguments: Any) -> None:
    """Nothing, on the event loop."""


@job(name="noop_in_thread")
def noop_in_thread(*arguments: Any) -> None:
    """Nothing, in a thread."""


@job
async def tick(*arguments: Any) -> None:
    """Shows that it ran."""
    measured.tick()


@job(name="sleep_10_ms")
async def sleep_10_ms(*arguments: Any) -> None:
    """Waits, as a call of another service does."""
    await asyncio.sleep(0.010)


@job(name="sleep_1_ms")
def sleep_1_ms(*arguments: Any) -> None:
    """Waits in a thread, without holding the interpreter."""
    time.sleep(0.001)


@job
async def waited(*arguments: Any) -> None:
    """Leaves in a file how many milliseconds passed from its enqueueing to its start."""
    context = current()
    assert context.enqueued_at is not None
    _note(f"{(context.started_at - context.enqueued_at) * 1000:.3f}")


@job
async def begun(*arguments: Any) -> None:
    """Leaves in a file when it began, in seconds since 1970."""
    _note(repr(time.time()))


def _note(line: str) -> None:
    with open(os.environ["BENCH_TICKS"], "a", encoding="ascii") as file:  # noqa: PTH123 - the quicker way
        file.write(line + "\n")
