"""A life that interrupts the driver's calls when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.life import Life
from amqpjobs.streams.translation import translated


class Lifeline(Life):
    """A life with a guard around every call to the driver.

    The driver rejects most of what waits when a connection ends, but not all: a publish that waits for a place in its
    write queue, or for a lock, would wait for ever. The guard interrupts those too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scopes: set[asyncio.Timeout] = set()

    def end(self, reason: BrokerError | None = None) -> bool:
        """End it (False when it had ended before): `lost` is done, and whoever is inside `guard` is interrupted."""
        if not super().end(reason):
            return False
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)
        return True

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Run a driver call: interrupted at the end of the life, and every exception of it translated."""
        self.check()
        task = asyncio.current_task()
        cancelling = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes.add(scope)
                try:
                    yield
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            raise self.gone() from None
        except asyncio.CancelledError as error:
            # The driver ends waiting futures with CancelledError; only a cancellation of the task itself is one to us.
            if task is not None and task.cancelling() > cancelling:
                raise
            raise translated(error) from None
        except BrokerError:
            raise
        except Exception as error:
            raise translated(error) from error
