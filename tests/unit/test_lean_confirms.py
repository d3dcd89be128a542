"""Which messages a confirm settles, in the lean driver, whatever order a broker sends them in."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from amqpjobs.streams.errors import Nacked
from amqpjobs.streams.lean.publisher import LeanPublisher, Terms
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import ACK, NACK
from amqpjobs.streams.port import Batch, Outgoing
from tests.unit.growth import TRIES, in_proportion

Answer = Callable[..., None]


def unconnected() -> LeanPublisher:
    """Of a socket that leads nowhere: what is written to it waits."""
    return LeanPublisher(Socket(), 1, Terms(largest=1000, frame_max=4096))


@pytest.fixture
async def publisher() -> LeanPublisher:
    return unconnected()


def confirm(publisher: LeanPublisher, tag: int, *, multiple: bool = False, code: int = ACK) -> None:
    frame = struct.pack(">QB", tag, multiple)
    assert publisher.fast(code, frame, 0, len(frame))


async def lined_up(count: int) -> tuple[LeanPublisher, Batch]:
    publisher = unconnected()
    return publisher, await written(publisher, count)


async def written(publisher: LeanPublisher, count: int) -> Batch:
    batch = Batch([Outgoing(b"{}", "", "q") for _ in range(count)])
    await publisher._write(batch, True)
    return batch


async def test_one_by_one_in_groups_and_across_gaps(publisher: LeanPublisher) -> None:
    first, second = await written(publisher, 5), await written(publisher, 5)
    confirm(publisher, 3)
    assert first.pending == {0, 1, 3, 4}
    confirm(publisher, 1)
    confirm(publisher, 2, code=NACK)
    assert first.pending == {3, 4}
    assert list(first.failed) == [1]
    assert isinstance(first.failed[1], Nacked)
    confirm(publisher, 8)
    confirm(publisher, 7, multiple=True, code=NACK)
    assert first.pending == set()
    assert list(first.failed) == [1, 3, 4]
    assert second.pending == {3, 4}
    assert list(second.failed) == [0, 1]
    confirm(publisher, 0, multiple=True)
    assert second.pending == set()
    third = await written(publisher, 2)
    confirm(publisher, 0, multiple=True)
    assert third.pending == set()
    assert third.failed == {}


@pytest.mark.parametrize("tag", [0, 4, 2**63, 2**64 - 1])
async def test_a_confirm_of_what_was_never_sent_settles_nothing(publisher: LeanPublisher, tag: int) -> None:
    batch = await written(publisher, 3)
    confirm(publisher, tag)
    assert batch.pending == {0, 1, 2}


async def test_a_confirm_far_beyond_the_last_message_ends(publisher: LeanPublisher) -> None:
    """What counted its way up to it would still be counting."""
    batch = await written(publisher, 3)
    confirm(publisher, 2**63, multiple=True)
    assert batch.pending == set()


@pytest.mark.parametrize("group", [1, 2])
async def test_each_confirm_costs_the_same_however_many_wait(group: int) -> None:
    """The oldest first: were all that wait looked at for each of them, it would grow with the square."""
    waiting = {size: [await lined_up(size) for _ in range(TRIES)] for size in (6_000, 60_000)}

    def confirm_all(size: int) -> Callable[[], None]:
        publisher, batch = waiting[size].pop()

        def run() -> None:
            for tag in range(group, size + 1, group):
                confirm(publisher, tag, multiple=group > 1)
            assert batch.pending == set()

        return run

    assert in_proportion(confirm_all, 6_000, 60_000)
