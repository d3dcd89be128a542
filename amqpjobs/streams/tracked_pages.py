"""Reading and writing sets of pages (`model.tracked_pages`): from a view's file, and from the stream."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from amqpjobs.model import names, reading, tracked_pages
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.tracked import Stand
from amqpjobs.streams.epoch import first_from, leads_on, tail
from amqpjobs.streams.port import Connection, Incoming, Start
from amqpjobs.streams.subscription import Subscription
from amqpjobs.streams.tracked_store import TrackedStore
from amqpjobs.streams.tracked_view import TrackedView

log = logging.getLogger("amqpjobs.streams")

Query = Callable[[Callable[[], Any]], Awaitable[Any]]

JOBS = 200
"""Jobs that are read from the file at once."""
FIRST = 1
"""The greatest first offset of a whole stream."""
QUIET = 0.25
SILENCE = 1.0


class PageReader:
    """The state in a view's file at one moment, whatever its process folds meanwhile."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._store = TrackedStore(self._db)
        self._db.execute("BEGIN")
        self.stand: Stand = self._store.stand()
        self.upto = int(self._store.meta("offset") or -1) + 1

    def entries(self, of: str, *, restore: bool) -> Iterator[list[bytes]]:
        """The set, in pieces."""
        store = self._store
        yield [tracked_pages.write_begin(of, self.upto, self.stand, restore=restore)]
        queues = [(name, store.queue(name)) for name in store.queues()]
        yield [tracked_pages.write_queue(of, name, policy, restore=restore) for name, policy in queues if policy]
        yield [tracked_pages.write_known(of, *store.known(), restore=restore)]
        last = -1
        while jobs := store.all_after(last, JOBS):
            last = jobs[-1].id
            lines = {job.id: [(at, line) for _, at, line in store.lines(job.id)] for job in jobs}
            yield [tracked_pages.write_job(of, job, lines[job.id], restore=restore) for job in jobs]

    def base(self) -> int:
        """What the numbers of another life of the stream must begin above."""
        return self._store.highest() + 1

    def close(self) -> None:
        """Let the file go."""
        self._db.close()


class PagedStart:
    """Where a view begins: with the log's head, or with the last pages where that is gone."""

    lacking = False
    """Pages hold all that there is: nothing that comes later tells more."""

    def __init__(self, view: TrackedView) -> None:
        self._view = view

    async def begin(self, connection: Connection, query: Query) -> Start:
        """Let the view begin, and where to read from. Raises BrokerError."""
        first = await first_from(connection, names.EVENTS, "first", SILENCE)
        if first is None or first <= FIRST:
            return "first"
        upto = await self._load(connection, query)
        if upto is None:
            log.error("%s begins at offset %d, without pages: what it said before is lost", names.EVENTS, first)
            return "first"
        log.info("%s is read from %d on, with the pages that follow it", names.EVENTS, upto)
        return max(first, upto)

    async def same(self, connection: Connection, query: Query) -> bool:
        """Whether the stream's last messages are still those that the view folded."""
        return await leads_on(connection, names.EVENTS, await query(self._view.trail))

    async def covers(self, connection: Connection, query: Query) -> bool:
        """Whether there are pages; if so, the view is emptied."""
        if await self._load(connection, query) is None:
            return False
        await query(self._view.restart)
        return True

    async def _load(self, connection: Connection, query: Query) -> int | None:
        """Load the last whole set; what it reaches up to, None when there is none."""
        whole: list[str] = []

        def look(piece: reading.Piece) -> None:
            if piece.value.get("type") == "pages_end" and isinstance(piece.value.get("of"), str):
                whole.append(piece.value["of"])

        async for messages in _all(connection):
            for piece in _pages(messages):
                look(piece)
        if not whole:
            return None
        await query(self._view.restart)
        loader = _Loader(self._view, whole[-1])
        async for messages in _all(connection):
            await query(lambda messages=messages: loader.read(messages))  # type: ignore[misc]
        return loader.upto


async def _all(connection: Connection) -> AsyncIterator[list[Incoming]]:
    """The stream as it is now, from its first message on."""
    goal = await tail(connection, names.EVENTS, QUIET)
    reader = await Subscription.open(connection, names.EVENTS, "first")
    reached = -1
    try:
        while await reader.peek(QUIET if goal is None or reached >= goal else SILENCE) is not None:
            messages = reader.take(500)
            reached = messages[-1].offset or 0
            yield messages
    finally:
        await reader.close()


def _pages(messages: Sequence[Incoming]) -> Iterator[reading.Piece]:
    for message in messages:
        pieces = reading.pieces(message.body) if b'"page' in message.body else []
        if not isinstance(pieces, Unreadable):
            yield from (piece for piece in pieces if isinstance(piece.value, dict))


class _Loader:
    """Fills an empty view from one set of pages."""

    def __init__(self, view: TrackedView, of: str) -> None:
        self._view, self._of = view, of
        self.upto: int | None = None

    def read(self, messages: Sequence[Incoming]) -> None:
        """Take in what of these belongs to the set, in one transaction."""
        store = self._view.store
        store.db.execute("BEGIN")
        for piece in _pages(messages):
            if piece.value.get("of") != self._of or piece.value.get("restore") is True:
                continue
            begun = tracked_pages.begun(piece.value) if piece.value.get("type") == "pages" else None
            if begun is not None:
                _, self.upto, stand = begun
                store.keep_stand(stand)
            elif self.upto is not None and piece.value.get("type") == "page":
                tracked_pages.load(store, piece.value, piece.raw)
        store.flush()
        store.db.execute("COMMIT")
