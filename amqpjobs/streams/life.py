"""How long a connection or channel lives, and how those who wait on it learn of its end."""

from __future__ import annotations

import asyncio

from amqpjobs.streams.errors import BrokerError, ConnectionLost


class Life:
    """A `lost` future that nobody has to await."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.lost.done()

    @property
    def reason(self) -> BrokerError | None:
        """Why it ended; None while it lives, and when it was closed by ourselves."""
        if not self.lost.done() or self.lost.cancelled():
            return None
        reason = self.lost.exception()
        return reason if isinstance(reason, BrokerError) else None

    def end(self, reason: BrokerError | None = None) -> bool:
        """End it; False when it had ended before."""
        if self.lost.done():
            return False
        if reason is None:
            self.lost.set_result(None)
        else:
            self.lost.set_exception(reason)
            self.lost.exception()  # seen: nobody need await `lost`, and none shall be told "never retrieved"
        return True

    def gone(self) -> BrokerError:
        """A fresh exception that says why it ended."""
        return ConnectionLost(str(self.reason) if self.reason else "closed")

    def check(self) -> None:
        """Raise ConnectionLost when it has ended."""
        if self.lost.done():
            raise self.gone()
