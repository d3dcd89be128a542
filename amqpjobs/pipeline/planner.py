"""What there is to read: asked of the broker over one connection that is kept, and made anew when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from amqpjobs.pipeline.background import Background
from amqpjobs.pipeline.lake import Mark
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.errors import BrokerError, NotFound
from amqpjobs.streams.port import Connection
from amqpjobs.streams.ranges import Position, Range

T = TypeVar("T")


class Planner:
    """Asks over a connection that is kept, also through ranges that take minutes. Close it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = Background()
        self._connection: Connection | None = None

    def following(self, marks: Mapping[str, Mark | None], most: int) -> dict[str, Range]:
        """The next range of each stream that has one, after these marks. Raises BrokerError."""

        async def all_of_them(connection: Connection) -> list[Range | None]:
            return await asyncio.gather(*(_next(connection, name, mark, most) for name, mark in marks.items()))

        found = self._ask(all_of_them)
        return {each.stream: each for each in found if each is not None}

    def same(self, stream: str, position: Position) -> bool:
        """Whether the stream is still the one that has, or had, this message."""
        return self._ask(lambda connection: ranges.same(connection, stream, position))

    def close(self) -> None:
        """Close the connection."""
        self._drop()
        self._runner.close()

    def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        async def answer() -> T:
            if self._connection is None or self._connection.lost.done():
                self._connection = await connect(self._settings, name="pipeline plans")
            return await question(self._connection)

        try:
            return self._runner.run(answer())
        except BrokerError:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._runner.run(connection.close())


async def _next(connection: Connection, stream: str, mark: Mark | None, most: int) -> Range | None:
    position = None if mark is None else Position(mark.next, mark.digest)
    try:
        return await ranges.following(connection, stream, position, most)
    except NotFound:
        return None  # nobody declared it
