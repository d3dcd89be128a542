"""The newest messages of a stream, read backwards in pieces: for who looks now and then, and follows nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from amqpjobs.streams import ranges
from amqpjobs.streams.port import Connection, Incoming
from amqpjobs.streams.ranges import Range, RangeReader

FIRST = 500
"""Messages of the first piece; each further one has twice as many."""
LARGEST = 2000
"""At most. The garbage collector goes through all that is held: with eight thousand that took a dashboard 18 ms."""


async def pieces(connection: Connection, stream: str, most: int) -> AsyncIterator[list[Incoming]]:
    """Up to `most` of the newest messages, the newest piece first, each in the order of the stream.

    Raises NotFound when there is no such stream, and ConnectionLost.
    """
    tip = await ranges.newest(connection, stream)
    lowest = await ranges.lowest(connection, stream) if tip is not None else None
    if tip is None or lowest is None:
        return
    end, size, last = tip.next, FIRST, max(lowest, tip.next - most)
    while end > last:
        start = max(last, end - size)
        yield await _read(connection, Range(stream, start, end, None))
        end, size = start, min(2 * size, LARGEST)


async def _read(connection: Connection, wanted: Range) -> list[Incoming]:
    reader = await RangeReader.open(connection, wanted, skip=True)
    found: list[Incoming] = []
    try:
        while taken := await reader.take():
            found += taken
    finally:
        await reader.close()
    return found
