"""Threads for sync handlers.

Not `concurrent.futures`: that one joins its threads at exit, so a single handler that hangs would keep a stopped worker
alive for ever. These are daemons; what they still ran is given back to the queue before the process ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[[], Any], contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ThreadPool:
    """Up to `size` daemon threads, started as needed. `run` never raises what the call raises: calls return values."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._lock = threading.Lock()

    def run(self, call: Callable[[], Any], context: contextvars.Context) -> asyncio.Future[Any]:
        """Run `call`, which must not raise, in a thread within `context`; the future ends with its value."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((call, context, loop, future))
        with self._lock:
            self._busy += 1
            if len(self._threads) < min(self._busy, self._size):
                self._spawn()
        return future

    def close(self) -> None:
        """Let the threads end once what they run has ended; does not wait."""
        for _ in self._threads:
            self._calls.put(None)

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._work, name=f"amqpjobs-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, context, loop, future = item
            result = context.run(call)
            with self._lock:
                self._busy -= 1
            _deliver(loop, future, result)
            del item, call, context, future, result


def _deliver(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any) -> None:
    try:
        loop.call_soon_threadsafe(_settle, future, result)
    except RuntimeError:  # the loop is closed: the worker has stopped without this job
        return


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
