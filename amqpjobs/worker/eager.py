"""Tasks whose first step is made at once, and not in a later turn of the loop.

A hundred jobs that end in one millisecond have a hundred followers. Where each of these first waits for its turn, it
waits for the work of all the others' ends, and they all end together again: of 10 ms jobs that takes a tenth of the
rate. Python has such tasks from 3.12 on (`eager_start`); this does the same on 3.11.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from asyncio import tasks
from collections.abc import Callable, Coroutine, Generator
from typing import Any


def begin(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    context: contextvars.Context,
    known: Callable[[asyncio.Task[None]], None],
) -> None:
    """Await `coroutine` in a task within `context`, as far as the first thing it waits for; `known` is told before."""
    resumed = _resumed(coroutine)
    task = loop.create_task(resumed, context=context)
    known(task)
    outer = asyncio.current_task(loop)
    if outer is not None:
        tasks._leave_task(loop, outer)
    tasks._enter_task(loop, task)
    try:
        context.run(resumed.send, None)
    finally:
        tasks._leave_task(loop, task)
        if outer is not None:
            tasks._enter_task(loop, outer)


async def _resumed(coroutine: Coroutine[Any, Any, None]) -> None:
    await _steps(coroutine)


@types.coroutine
def _steps(coroutine: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
    """The first step, and then a stop: the task's own first step, in a later turn of the loop, goes on there."""
    try:
        waits = coroutine.send(None)
    except StopIteration:
        yield
        return
    try:
        yield
    except asyncio.CancelledError as error:
        if waits is None:
            waits = _thrown(coroutine, error)
        else:
            waits.cancel()  # as a task does with what it waits for: the coroutine hears of it from there
    while waits is not _OVER:
        if getattr(waits, "_asyncio_future_blocking", None) is not None:
            waits._asyncio_future_blocking = True  # another task may have begun to wait for the same thing meanwhile
        try:
            yield waits
        except BaseException as error:
            waits = _thrown(coroutine, error)
        else:
            yield from coroutine.__await__()
            return


_OVER = object()


def _thrown(coroutine: Coroutine[Any, Any, None], error: BaseException) -> Any:
    try:
        return coroutine.throw(error)
    except StopIteration:
        return _OVER
