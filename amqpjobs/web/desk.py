"""This process's actions: begun for visitors, kept in mind while they are under way and for a while after."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence

from amqpjobs.action import Action, Order, Record, Set
from amqpjobs.actions import Actions
from amqpjobs.clock import Clock
from amqpjobs.model.protocol import Target
from amqpjobs.orders import Orders
from amqpjobs.settings import Settings
from amqpjobs.streams import emptying
from amqpjobs.streams.link import Link
from amqpjobs.streams.marks import Where

PATIENCE = 5.0
"""Seconds that a visitor waits for an outcome; beyond, the answer is that it is not known yet."""
REMEMBERED = 200
"""Actions whose handles are kept; older ones are told by the audit."""


class Desk:
    """Appends on a connection of its own, made at the first action: a mistake there must not end what views read."""

    def __init__(self, settings: Settings, sets: Mapping[str, Set], record: Record, clock: Clock) -> None:
        self._clock = clock
        self._link = Link(settings, "amqpjobs web actions", clock)
        self._actions = Actions(self._link, sets, record, clock)
        self._handles: OrderedDict[str, Action] = OrderedDict()

    async def act(self, order: Order, jobs: Sequence[Target]) -> Action:
        """Act on these jobs and wait for the outcome, but not for ever."""
        await self._link.start()
        return await self._wait(self._actions.begin(order, jobs))

    async def act_on_all(self, order: Order, where: Where) -> Action:
        """Act on all that match and wait for the outcome, but not for ever."""
        await self._link.start()
        return await self._wait(self._actions.begin_all(order, where))

    async def undo(self, action: str, *, by: str, via: str) -> list[Action]:
        """Restore what an action deleted; empty when there is no such action, or nothing of it to undo."""
        await self._link.start()
        return [await self._wait(each) for each in await self._actions.undo(action, by=by, via=via)]

    @contextlib.asynccontextmanager
    async def orders(self, by: str, via: str) -> AsyncIterator[Orders]:
        """To give orders with: what is given in the block is put on record as ordered by `by`."""
        await self._link.start()
        orders = Orders(self._link, by=by, via=via, clock=self._clock)
        try:
            yield orders
        finally:
            await orders.close()

    async def empty(self, queue: str, *, by: str, via: str) -> int:
        """Throw away what waits in a queue; how many jobs that were. Raises BrokerError."""
        await self._link.start()
        connection = await self._link.connection(PATIENCE)
        async with self.orders(by, via) as orders:
            await orders.clear(queue)
        return await emptying.empty(connection, queue, PATIENCE)

    @property
    def blocked(self) -> str | None:
        """Why the broker took nothing of what was last ordered, or None."""
        return self._link.blocked

    def handle(self, action: str) -> Action | None:
        """An action of this process that is under way, or was lately."""
        return self._handles.get(action)

    async def stop(self) -> None:
        """Give up what is under way; safe to repeat."""
        await self._actions.close()
        await self._link.stop()

    async def _wait(self, action: Action) -> Action:
        self._handles[action.id] = action
        while len(self._handles) > REMEMBERED:
            self._handles.popitem(last=False)
        await action.wait(PATIENCE)
        return action
