"""Ranges of a stream: all of it and nothing else, or an error that says what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from amqpjobs.settings import Settings
from amqpjobs.streams import ranges, subscription
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.port import Batch, Connection, Outgoing
from amqpjobs.streams.ranges import Position, Range, RangeLost, RangeReader
from tests.conftest import Eventually

STREAM = "tried"
EVERYTHING = 10**9


@pytest.fixture
async def connection(settings: Settings) -> AsyncIterator[Connection]:
    connection = await connect(settings, name="test")
    await declare(connection)
    yield connection
    await connection.close()


async def declare(connection: Connection, **arguments: Any) -> None:
    await connection.declare_queue(STREAM, {"x-queue-type": "stream", **arguments})


async def append(connection: Connection, bodies: list[bytes]) -> None:
    publisher = await connection.publisher()
    batch = Batch([Outgoing(body, "", STREAM) for body in bodies])
    await publisher.publish_many(batch)
    assert not batch.failed
    await publisher.close()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


async def read(connection: Connection, wanted: Range, *, skip: bool = False) -> list[bytes]:
    reader, found = await RangeReader.open(connection, wanted, skip=skip), []
    try:
        while batch := await reader.take():
            found += [message.body for message in batch]
    finally:
        await reader.close()
    return found


async def following(connection: Connection, position: Position | None, most: int = EVERYTHING) -> Range:
    found = await ranges.following(connection, STREAM, position, most)
    assert found is not None
    return found


def after(found: Range) -> Position:
    assert found.digest is not None
    return Position(found.end, found.digest)


async def test_ranges_follow_each_other_without_gap_or_overlap(connection: Connection) -> None:
    assert await ranges.following(connection, STREAM, None, EVERYTHING) is None
    await append(connection, numbers(0, 900))
    found, position = [], None
    for _ in range(3):
        wanted = await following(connection, position, 300)
        found += await read(connection, wanted)
        position = after(wanted)
    assert found == numbers(0, 900)
    assert await ranges.following(connection, STREAM, position, EVERYTHING) is None
    await append(connection, numbers(900, 910))
    wanted = await following(connection, position)
    assert await read(connection, wanted) == numbers(900, 910)
    assert wanted.tail == wanted.end


async def test_slices_of_a_range_are_all_of_it(connection: Connection) -> None:
    await append(connection, numbers(0, 1000))
    wanted = await following(connection, None)
    slices = wanted.slices(3, least=100)
    assert len(slices) == 3
    assert [body for each in slices for body in await read(connection, each)] == numbers(0, 1000)
    assert [each.digest for each in slices] == [None, None, wanted.digest]
    assert len(wanted.slices(8, least=5000)) == 1


async def test_a_stream_made_anew_is_told(connection: Connection) -> None:
    await append(connection, numbers(0, 200))
    before = await following(connection, None)
    await connection.delete_queue(STREAM)
    await declare(connection)
    await append(connection, numbers(1000, 1050))
    assert not await ranges.same(connection, STREAM, after(before))
    wanted = await following(connection, after(before))
    assert wanted.anew
    found = await read(connection, wanted)
    assert [body for body in found if b"marker" not in body] == numbers(1000, 1050)
    await append(connection, numbers(1050, 1300))
    with pytest.raises(RangeLost, match="is not the one that was seen there"):
        await read(connection, before)


async def test_what_was_trimmed_is_told_or_skipped(connection: Connection, eventually: Eventually) -> None:
    await connection.delete_queue(STREAM)
    await declare(connection, **{"x-max-length-bytes": 40_000, "x-stream-max-segment-size-bytes": 10_000})
    await append(connection, numbers(0, 10))
    early = await following(connection, None)

    async def trimmed() -> bool:
        await append(connection, [b"%0500d" % n for n in range(20)])
        first = await ranges.lowest(connection, STREAM)
        return first is not None and first > early.end

    await eventually(trimmed)
    wanted = await following(connection, after(early))
    assert wanted.lost == wanted.start - early.end > 0
    assert not wanted.anew
    assert len(await read(connection, wanted)) > 0
    late = wanted._replace(start=early.end)  # as it was planned before the trim
    with pytest.raises(RangeLost, match=f"retention took {early.end} to {wanted.start - 1}"):
        await read(connection, late)
    assert await read(connection, late, skip=True) == await read(connection, wanted)


async def test_a_range_that_never_ends_is_an_error(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PATIENCE", 0.5)
    await append(connection, numbers(0, 5))
    wanted = await following(connection, None)
    with pytest.raises(RangeLost, match="nothing came from"):
        await read(connection, wanted._replace(end=wanted.end + 3, digest=b""))


@pytest.mark.parametrize("skip", [False, True])
async def test_what_is_trimmed_from_under_a_reader_is_told(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, skip: bool
) -> None:
    """The broker moves a reader whose next segment is gone to the first that there is, without a word."""
    for name in ("BATCH", "PREFETCH"):
        monkeypatch.setattr(ranges, name, 10)
    monkeypatch.setattr(subscription, "BUFFER_BYTES", 2_000)
    await connection.delete_queue(STREAM)
    await declare(connection, **{"x-max-length-bytes": 200_000, "x-stream-max-segment-size-bytes": 10_000})
    await append(connection, [b"%0500d" % n for n in range(200)])
    wanted = await following(connection, None)
    middle = wanted._replace(end=wanted.end - 20, digest=None)  # a slice that is not the last checks no digest
    reader = await RangeReader.open(connection, middle, skip=skip)
    found = await reader.take()

    async def trimmed() -> bool:
        await append(connection, [b"%0500d" % n for n in range(100)])
        first = await ranges.lowest(connection, STREAM)
        return first is not None and first > wanted.end

    await eventually(trimmed)
    if not skip:
        with pytest.raises(RangeLost, match=r"retention took \d+ to \d+ before they were read"):
            while await reader.take():
                pass
        return
    while messages := await reader.take():
        found += messages
    assert reader.lost > 0
    assert len(found) + reader.lost >= 180
