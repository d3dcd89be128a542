"""Threads for sync handlers.

Not `concurrent.futures`: that one joins its threads at exit, so a single handler that hangs would keep a stopped worker
alive for ever. These are daemons; what they still ran is given back to the queue before the process ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[[], Any], contextvars.Context, Callable[[Any], None]]


class ThreadPool:
    """Up to `size` daemon threads, started as needed; for one event loop.

    `settled` is called on the loop after the `done` of all the calls that returned meanwhile.
    """

    def __init__(self, size: int, settled: Callable[[], None]) -> None:
        self._size = size
        self._settled = settled
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._returned: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, call: Callable[[], Any], context: contextvars.Context, done: Callable[[Any], None]) -> None:
        """Run `call`, which must not raise, in a thread within `context`; then call `done` with its value on the loop.

        To be called on the loop.
        """
        self._loop = asyncio.get_running_loop()
        self._calls.put((call, context, done))
        self._busy += 1
        if len(self._threads) < min(self._busy, self._size):
            self._spawn()

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
            call, context, done = item
            self._returned.append((done, context.run(call)))
            if not self._woken:  # one wake-up for all that return meanwhile: each costs a system call
                self._woken = True
                self._wake()
            del item, call, context, done

    def _wake(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # the loop is closed: the worker has stopped without this job
            return

    def _settle(self) -> None:
        self._woken = False  # first: what returns from here on wakes the loop again
        while self._returned:
            done, value = self._returned.popleft()
            self._busy -= 1
            done(value)
        self._settled()
