"""Whether a stream is still the one that a view read, or was deleted and made anew.

An offset alone proves nothing: a broker moves one that lies beyond the end to the tail without a word (RabbitMQ then
delivers nothing below it, not even what comes later). So a reader resumes at its last message, inclusive; and as that
one may have landed there again (`model.trail`), it compares the last hundred.
"""

from __future__ import annotations

import enum
import hashlib
import json
import secrets
from collections.abc import Sequence

from amqpjobs.model.trail import LENGTH, Step, agrees, step
from amqpjobs.streams.errors import AccessRefused, NotFound, Unroutable
from amqpjobs.streams.port import Connection, Incoming, Outgoing, Start
from amqpjobs.streams.subscription import Subscription

SILENCE = 1.0
"""Seconds after which a resumed reader that got nothing looks for proof: its last message should have come at once."""


class Finding(enum.Enum):
    """What became of the stream."""

    SAME = "same"
    """The message at the position is the one that was read."""
    TRIMMED = "trimmed"
    """Retention took that message and maybe later ones."""
    ANEW = "anew"
    """Another stream under the same name."""


def digest(body: bytes) -> bytes:
    """What a view remembers of the last message it folded: 16 bytes."""
    return hashlib.blake2b(body, digest_size=16).digest()


async def judge(connection: Connection, stream: str, position: tuple[int, bytes], resumed: Subscription) -> Finding:
    """Judge by what a reader gets that resumed at the position's offset; takes nothing from it.

    Raises ConnectionLost, NotFound when the stream goes away meanwhile.
    """
    offset, remembered = position
    while (first := await resumed.peek(SILENCE)) is None:
        if await _ends_below(connection, stream, offset):
            return Finding.ANEW
    reached = _offset(first)
    if reached == offset:
        return Finding.SAME if digest(first.body) == remembered else Finding.ANEW
    if reached < offset:
        return Finding.ANEW
    # Retention takes a head and leaves the rest: a stream that still has anything up to our offset, and not the
    # message that we read there, is another one.
    lowest = await _lowest(connection, stream)
    return Finding.TRIMMED if lowest is None or lowest > offset else Finding.ANEW


async def leads_on(connection: Connection, stream: str, trail: Sequence[Step]) -> bool:
    """Whether the stream holds the messages of a trail, as far as retention left them."""
    if not trail:
        return True
    last = trail[-1].offset
    found: list[Step] = []
    reader = await Subscription.open(connection, stream, trail[0].offset)
    try:
        while (not found or found[-1].offset < last) and await reader.peek(SILENCE) is not None:
            found += [step(each.offset or 0, each.body) for each in reader.take(LENGTH)]
    finally:
        await reader.close()
    return agrees(trail, [each for each in found if each.offset <= last])


async def tail(connection: Connection, stream: str, timeout: float) -> int | None:
    """An offset near the tail (RabbitMQ: the start of the last chunk); None when nothing came within `timeout` seconds.

    LavinMQ's "last" is the start of the last segment, up to 8 MiB before the tail; but its offsets have no gaps.
    """
    if connection.server.get("product") != "LavinMQ":
        return await first_from(connection, stream, "last", timeout)
    first, state = await first_from(connection, stream, "first", timeout), await connection.passive(stream)
    return None if first is None or state is None else first + state.ready - 1


async def _lowest(connection: Connection, stream: str) -> int | None:
    return await first_from(connection, stream, "first", SILENCE)


async def first_from(connection: Connection, stream: str, start: Start, timeout: float) -> int | None:
    """The offset of the first message from `start` on; None when none came within `timeout` seconds."""
    reader = await Subscription.open(connection, stream, start, prefetch=1)
    try:
        first = await reader.peek(timeout)
    finally:
        await reader.close()
    return None if first is None else _offset(first)


async def _ends_below(connection: Connection, stream: str, offset: int) -> bool:
    """Whether a marker appended now lands at or below an offset that was taken already: proof of another stream.

    A user who may not write looks at what is at the tail instead.
    """
    marker = json.dumps({"type": "marker", "nonce": secrets.token_hex(8)}).encode()
    marked = await _append(connection, stream, marker)
    reader = await Subscription.open(connection, stream, "last")
    highest: int | None = None
    try:
        while await reader.peek(SILENCE) is not None:
            for message in reader.take(1000):
                highest = _offset(message)
                if highest > offset:
                    return False
                if message.body == marker:
                    return True
    finally:
        await reader.close()
    return not marked and highest is not None


async def _append(connection: Connection, stream: str, marker: bytes) -> bool:
    publisher = await connection.publisher()
    try:
        await publisher.publish(Outgoing(marker, "", stream))
    except Unroutable:
        raise NotFound(f"the stream {stream} is gone") from None
    except AccessRefused:
        return False
    finally:
        await publisher.close()
    return True


def _offset(message: Incoming) -> int:
    if message.offset is None:
        raise NotFound("what is read is no stream: its messages have no offset")
    return message.offset
