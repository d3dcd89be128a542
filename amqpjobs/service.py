"""A loop that may be started and stopped any number of times."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

log = logging.getLogger("amqpjobs")


class Service:
    """Runs `run()` in a task between `start` and `stop`; both may be repeated, in any order.

    A `run` that raises is logged, not lost: `failed` then holds the exception and `wait_failed` returns it, so that
    a process can exit non-zero in place of idling as if healthy.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """The loop itself; ends by cancellation."""
        raise TypeError(f"{type(self).__name__} has no run()")

    @property
    def running(self) -> bool:
        """Whether the loop is alive."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Start the loop unless it runs already."""
        if self.running:
            return
        self.failed = None
        self._task = asyncio.create_task(self._guard(), name=self.name)

    async def stop(self) -> None:
        """Cancel the loop and wait for its end; nothing to do when it never ran."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def wait_failed(self) -> BaseException | None:
        """Wait until the loop ends by itself; its exception, or None."""
        while (task := self._task) is not None:
            await asyncio.wait([task])
            if self._task is task:
                break
        return self.failed

    async def _guard(self) -> None:
        try:
            await self.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.failed = error
            log.exception("%s stopped by an error", self.name)


async def first_failure(services: Sequence[Service]) -> str:
    """Wait until one of the services ends by itself; which one, and why.

    A process whose loop died must say so and exit: one that idles looks healthy, and nobody starts it again.
    """
    watches = {asyncio.ensure_future(service.wait_failed()): service for service in services}
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for watch in watches:
            watch.cancel()
    ended = done.pop()
    return f"{watches[ended].name} ended: {ended.result() or 'without an error'}"


async def first_to_end(*works: Coroutine[Any, Any, object]) -> None:
    """Run them until one ends; raises what it raised, when the others were cancelled and have stopped too."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop where it is installed; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop
