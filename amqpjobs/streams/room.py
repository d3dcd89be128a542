"""Room for so many at once: a semaphore that several places are taken of in one go."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """`most` places, given in the order in which they are asked for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> int:
        """Wait for so many places (all of them for more than there are); how many were taken, to be given back."""
        count = min(count, self._most)
        if not self._waiting and count <= self._free:
            self._free -= count
            return count
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self.give(0)  # to those behind, whom only this one held up
            else:
                self.give(count)
            raise
        return count

    def give(self, count: int) -> None:
        """Give places back."""
        self._free += count
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)
