"""Views for those who look once: the command line, and programs that act on jobs that wait.

They are kept in the state directory from one time to the next, so that only what is new has to be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from amqpjobs.action import Record, Set
from amqpjobs.actions import Actions
from amqpjobs.clock import Clock, SystemClock
from amqpjobs.model import names
from amqpjobs.model.protocol import Target
from amqpjobs.model.words import SETS
from amqpjobs.settings import Settings
from amqpjobs.streams import state
from amqpjobs.streams.audit_store import AuditStore
from amqpjobs.streams.checkpoints import ColdStart
from amqpjobs.streams.errors import NotFound
from amqpjobs.streams.follow import Follower, View
from amqpjobs.streams.link import Link
from amqpjobs.streams.views import DelayedView

ROLE = "client"
"""The folder in the state directory."""


class Desk:
    """An operator's desk: `actions` to begin, the `sets` and the `record` to look things up in."""

    def __init__(self, actions: Actions, sets: dict[str, Set], record: Record) -> None:
        self.actions = actions
        self.sets = sets
        self.record = record

    async def placed(
        self, word: str, jids: Sequence[str], streams: Sequence[str], entry: str | None = None, *, choose: str
    ) -> dict[str, list[Target]]:
        """The jobs by the set that they wait in (restore: waited in); what is nowhere is asked of the first.

        Raises ValueError when one is in several; `choose` is how to say which.
        """
        placed: dict[str, list[Target]] = {stream: [] for stream in streams}
        for jid in jids:
            found = [stream for stream in streams if await self._is_there(word, jid, entry, stream)]
            if len(found) > 1:
                sets = [name for name, stream in SETS.items() if stream in found]
                raise ValueError(f"{jid} is in {' and in '.join(sets)}: say which with {choose}; nothing was done")
            placed[found[0] if found else streams[0]].append(Target(jid, entry))
        return {stream: jobs for stream, jobs in placed.items() if jobs}

    async def _is_there(self, word: str, jid: str, entry: str | None, stream: str) -> bool:
        if word == "restore":
            store, reader = self.record
            return await reader.query(lambda: store.deletion(jid, entry, stream)) is not None
        view, follower = self.sets[stream]
        rows = await follower.query(lambda: view.find(jid))
        return any(entry in (None, row.entry) for row in rows)


@contextlib.asynccontextmanager
async def desk(
    settings: Settings, streams: Sequence[str] = names.DELAYED, *, clock: Clock | None = None
) -> AsyncIterator[Desk]:
    """A desk whose views have read all that there is: `async with desk(Settings()) as it: it.actions.begin(…)`.

    Raises BrokerError (NotFound where there is no topology) and NoStateFolder.
    """
    async with contextlib.AsyncExitStack() as resources:
        folder = resources.enter_context(state.hold(settings, ROLE))
        link = await resources.enter_async_context(linked(settings, "actions", clock or SystemClock()))
        record_store = AuditStore(folder.path)
        resources.callback(record_store.close)
        record = Record(record_store, await resources.enter_async_context(followed(link, record_store, names.AUDIT)))
        sets: dict[str, Set] = {}
        for stream in streams:
            view = DelayedView(folder.path, stream)
            resources.callback(view.close)
            sets[stream] = Set(view, await resources.enter_async_context(followed(link, view, stream)))
        actions = Actions(link, sets, record, link.clock)
        resources.push_async_callback(actions.close)
        yield Desk(actions, sets, record)


@contextlib.asynccontextmanager
async def linked(settings: Settings, name: str, clock: Clock) -> AsyncIterator[Link]:
    """A started link; a broker that refuses or cannot be reached is an error at once."""
    link = Link(settings, name, clock, fatal_first=True)
    await link.start()
    try:
        yield link
    finally:
        await link.stop()


@contextlib.asynccontextmanager
async def followed(link: Link, view: View, stream: str) -> AsyncIterator[Follower]:
    """A follower that has reached the tail. Raises NotFound where there is no such stream: this declares nothing."""
    connection = await link.connection()
    if await connection.passive(stream) is None:
        raise NotFound(f"there is no stream {stream}: `amqpjobs setup` declares it")
    origin = ColdStart(view, link.clock) if isinstance(view, DelayedView) else None
    follower = Follower(link, view, stream, clock=link.clock, origin=origin)
    await follower.start()
    try:
        while not follower.caught_up:
            if follower.trouble is not None:
                raise NotFound(follower.trouble)
            with contextlib.suppress(TimeoutError):
                await follower.wait_caught_up(0.2)
        yield follower
    finally:
        await follower.stop()
