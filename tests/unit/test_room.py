"""Room for so many at once, in the order in which it is asked for."""

from __future__ import annotations

import asyncio

from amqpjobs.streams.room import Room
from tests.patience import PATIENCE


async def test_who_asked_first_is_served_first_whatever_its_size() -> None:
    room = Room(10)
    order: list[str] = []

    async def use(name: str, count: int) -> None:
        taken = await room.take(count)
        order.append(name)
        await asyncio.sleep(0)
        room.give(taken)

    await asyncio.gather(use("a", 8), use("large", 50), use("small", 1), use("b", 9), use("c", 1))
    assert order == ["a", "large", "small", "b", "c"]
    assert await room.take(10) == 10


async def test_one_that_gives_up_holds_nobody_up_and_keeps_nothing() -> None:
    room = Room(2)
    assert await room.take(1) == 1
    large, small = asyncio.create_task(room.take(2)), asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    assert await small == 1
    late = asyncio.create_task(room.take(2))
    await asyncio.sleep(0)
    room.give(2)
    late.cancel()  # in the moment in which it was given what it asked for
    await asyncio.gather(late, return_exceptions=True)
    async with asyncio.timeout(PATIENCE):
        assert await room.take(2) == 2
