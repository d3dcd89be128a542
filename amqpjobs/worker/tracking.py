"""The door to tracked jobs: what they need is loaded with the first of them, and no part of a worker's start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from amqpjobs.service import Service

if TYPE_CHECKING:
    from amqpjobs.worker.leases import Lease, Leases
    from amqpjobs.worker.run import Ended, Run


class Tracking(Service):
    """Stands for `load`'s leases; plain jobs never come here."""

    def __init__(self, classes: Container[str], load: Callable[[], Leases]) -> None:
        super().__init__("leases")
        self.classes = classes
        """Jobs of these are tracked, whatever their producers wanted."""
        self.on_granted: Callable[[Run], None] = lambda run: None
        """Called on the loop when a run may begin."""
        self.on_dropped: Callable[[Run], None] = lambda run: None
        """Called on the loop when it may not: its message is dealt with."""
        self._load = load
        self._leases: Leases | None = None
        self._wanted = asyncio.Event()

    @property
    def leases(self) -> Leases:
        """The leases of this worker."""
        if self._leases is None:
            self._leases = self._load()
            self._leases.on_granted, self._leases.on_dropped = self.on_granted, self.on_dropped
            self._wanted.set()
        return self._leases

    def ask(self, run: Run) -> None:
        """See `Leases.ask`."""
        self.leases.ask(run)

    def ended(self, run: Run, lease: Lease, ended: Ended) -> None:
        """See `Leases.ended`."""
        self.leases.ended(run, lease, ended)

    async def run(self) -> None:
        """Renew leases, once there are any."""
        await self._wanted.wait()
        await self.leases.run()

    async def finish(self, timeout: float) -> None:
        """See `Leases.finish`."""
        if self._leases is not None:
            await self._leases.finish(timeout)
