"""How long a connection, channel or subscription lives, and how those who wait on it learn of its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amqpjobs.streams.errors import BrokerError, ConnectionLost
from amqpjobs.streams.translation import translated


class Lifeline:
    """A `lost` future and a guard around every call to the driver.

    The driver rejects most of what waits when a connection ends, but not all: a publish that waits for a place in its
    write queue, or for a lock, would wait for ever. The guard interrupts those too.
    """

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scopes: set[asyncio.Timeout] = set()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.lost.done()

    @property
    def reason(self) -> BrokerError | None:
        """Why it ended; None while it lives and when it was closed by ourselves."""
        if not self.lost.done() or self.lost.cancelled():
            return None
        reason = self.lost.exception()
        return reason if isinstance(reason, BrokerError) else None

    def end(self, reason: BrokerError | None = None) -> None:
        """End it (the first call counts): `lost` is done, and whoever is inside `guard` is interrupted."""
        if self.lost.done():
            return
        if reason is None:
            self.lost.set_result(None)
        else:
            self.lost.set_exception(reason)
            self.lost.exception()  # seen: nobody need await `lost`, and none shall be told "never retrieved"
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)

    def gone(self) -> BrokerError:
        """A fresh exception that says why it ended."""
        return ConnectionLost(str(self.reason) if self.reason else "closed")

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Run a driver call: interrupted at the end of the life, and every exception of it translated."""
        if self.lost.done():
            raise self.gone()
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
