"""A follower folds each message once, and knows a stream made anew from the one that it read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.follow import FOLD_BYTES, Follower, Message
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, FromTime, Outgoing
from amqpjobs.streams.subscription import Subscription
from amqpjobs.streams.views import DelayedView
from tests.broker.reading import publish_once_up
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE
from tests.patience import until as eventually

STREAM = names.RETRIES


class Memory:
    """A view that remembers everything that it was told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.renewals = 0
        self.trims: list[int] = []
        self.batches: list[int] = []
        self.sizes: list[int] = []
        """Bytes of each fold."""
        self.gate = threading.Event()
        """A fold waits for it."""
        self.gate.set()
        self.told: list[int | None] = []
        """How many messages were announced, and None at each arrival."""

    def position(self) -> tuple[int, bytes] | None:
        return (self.messages[-1].offset, self.messages[-1].digest) if self.messages else None

    def fold(self, messages: Sequence[Message]) -> None:
        assert self.gate.wait(PATIENCE)
        self.messages += messages
        self.batches.append(len(messages))
        self.sizes.append(sum(len(each.body) for each in messages))

    def expect(self, messages: int) -> None:
        self.told.append(messages)

    def arrive(self) -> None:
        self.told.append(None)

    def renew(self) -> None:
        self.messages = []
        self.renewals += 1

    def trimmed(self, first: int) -> None:
        self.trims.append(first)

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages if b"marker" not in each.body]


@pytest.fixture
async def connection(link: Link, settings: Settings) -> Connection:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    return connection


@pytest.fixture
async def view() -> Memory:
    return Memory()


@pytest.fixture
async def follower(link: Link, connection: Connection, view: Memory) -> AsyncIterator[Follower]:
    follower = Follower(link, view, STREAM, clock=SystemClock())
    yield follower
    await follower.stop()


async def write(connection: Connection, bodies: Sequence[bytes], stream: str = STREAM) -> None:
    publisher = await connection.publisher()
    await asyncio.gather(*(publish_once_up(publisher, Outgoing(body, "", stream)) for body in bodies))
    await publisher.close()


def numbered(first: int, count: int, life: str = "a") -> list[bytes]:
    return [json.dumps({"life": life, "n": n}).encode() for n in range(first, first + count)]


async def until(follower: Follower, view: Memory, bodies: list[bytes]) -> None:
    """Wait until exactly these were folded, besides markers."""
    await follower.wait(lambda: view.bodies() == bodies or None, timeout=PATIENCE)


async def test_everything_once_over_stops_and_starts(follower: Follower, view: Memory, connection: Connection) -> None:
    expected: list[bytes] = []
    for round_number in range(3):
        expected += (fresh := numbered(1000 * round_number, 400))
        await write(connection, fresh)
        await follower.start()
        await until(follower, view, expected)
        await follower.wait_caught_up(PATIENCE)
        await follower.stop()
    assert view.bodies() == expected
    assert (view.renewals, view.trims) == (0, [])
    assert [each.offset for each in view.messages] == sorted({each.offset for each in view.messages})


async def test_what_was_folded_last_is_kept_though_nothing_follows(
    link: Link, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that waited for the next message let a kill and a lost tail bring back what was settled long before."""
    monkeypatch.setattr("amqpjobs.streams.view_file.COMMIT_EVERY", 3600.0)
    view = DelayedView(tmp_path, STREAM)
    follower = Follower(link, view, STREAM, clock=SystemClock())
    await follower.start()
    await follower.wait_caught_up(PATIENCE)

    def kept() -> int | None:
        with contextlib.closing(sqlite3.connect(view.path)) as beside:  # as whoever starts after a kill finds it
            row = beside.execute("SELECT value FROM meta WHERE name='offset'").fetchone()
        return None if row is None else row[0]

    def counted(count: int) -> bool | None:
        return view.count() == count or None

    for n in range(2):
        await write(connection, numbered(n, 1))
        await follower.wait(partial(counted, n + 1), timeout=PATIENCE)
        reached = await follower.query(view.position)
        assert reached is not None
        await eventually(lambda: kept() == reached[0])  # noqa: B023 - it ends within this turn
    await follower.stop()
    view.close()


async def test_a_query_waits_for_no_more_than_half_a_megabyte_of_messages(
    follower: Follower, view: Memory, connection: Connection
) -> None:
    """A worker's message may tell of hundreds of jobs: thousands of messages are no fold to wait for."""
    bodies = [json.dumps({"n": n, "long": "x" * 100_000}).encode() for n in range(40)]
    await write(connection, bodies)
    view.gate.clear()  # all of them wait while the first fold does
    await follower.start()
    beside = await Subscription.open(connection, STREAM, "first")
    await eventually(lambda: beside.backlog >= len(bodies))
    await beside.close()
    view.gate.set()
    await until(follower, view, bodies)
    assert max(view.sizes) <= FOLD_BYTES
    assert max(view.batches) == FOLD_BYTES // len(bodies[-1]), "as many as there may be"


async def test_a_message_that_is_longer_than_a_fold_is_folded_alone(
    follower: Follower, view: Memory, connection: Connection
) -> None:
    bodies = [b'"' + b"x" * (2 * FOLD_BYTES) + b'"', *numbered(0, 3)]
    await write(connection, bodies[:1])
    await write(connection, bodies[1:])
    await follower.start()
    await until(follower, view, bodies)


async def test_a_view_is_told_what_is_to_come_and_when_it_is_there(
    follower: Follower, view: Memory, connection: Connection
) -> None:
    await write(connection, numbered(0, 400))
    await follower.start()
    await follower.wait_caught_up(10)
    expected, arrived = view.told
    assert expected is not None
    assert 0 < expected <= 400  # up to the tail as it was seen, which is the start of its last chunk
    assert arrived is None
    await follower.stop()
    await follower.start()
    await follower.wait_caught_up(10)
    assert view.told[2:] == [None]


async def test_an_empty_stream_is_caught_up_and_then_followed(
    follower: Follower, view: Memory, connection: Connection
) -> None:
    await follower.start()
    await follower.wait_caught_up(PATIENCE)
    folds: list[int] = []
    follower.on_fold.append(lambda: folds.append(len(view.messages)))
    waiting = asyncio.create_task(follower.wait(lambda: view.bodies() or None, timeout=PATIENCE))
    await write(connection, [b"{}"])
    assert await waiting == [b"{}"]
    assert folds == [1]
    assert follower.behind_since is None
    with pytest.raises(TimeoutError):
        await follower.wait(lambda: None, timeout=0.1)


async def test_it_catches_up_while_others_keep_writing(
    follower: Follower, view: Memory, connection: Connection
) -> None:
    await write(connection, numbered(0, 500))

    async def keep_writing() -> None:
        for n in range(500, 100_000):
            await write(connection, numbered(n, 1))
            await asyncio.sleep(0.01)

    writing = asyncio.create_task(keep_writing())
    await follower.start()
    await follower.wait_caught_up(PATIENCE)
    assert len(view.bodies()) >= 500
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_from_a_time(link: Link, connection: Connection, view: Memory) -> None:
    clock = SystemClock()
    await write(connection, numbered(0, 10))
    follower = Follower(link, view, STREAM, clock=clock, start=FromTime(clock.wall() + 3600))
    await follower.start()
    await follower.wait_caught_up(PATIENCE)
    await write(connection, numbered(10, 1))
    await follower.wait(lambda: view.bodies() == numbered(10, 1) or None, timeout=PATIENCE)
    await follower.stop()


@pytest.mark.parametrize("count", [0, 5, 20, 60], ids=["empty", "shorter", "equal", "longer"])
async def test_a_stream_made_anew_while_we_were_away(
    count: int, follower: Follower, view: Memory, connection: Connection, settings: Settings
) -> None:
    await write(connection, numbered(0, 20))
    await follower.start()
    await follower.wait(lambda: len(view.bodies()) == 20 or None, timeout=PATIENCE)
    await follower.stop()
    await connection.delete_queue(STREAM)
    await topology.ensure(connection, settings)
    await write(connection, new := numbered(0, count, "b"))
    await follower.start()
    await follower.wait(lambda: (view.renewals == 1 and view.bodies() == new) or None, timeout=PATIENCE)
    await write(connection, more := numbered(900, 3, "b"))
    await follower.wait(lambda: view.bodies() == new + more or None, timeout=PATIENCE)
    assert (view.renewals, view.trims) == (1, [])


async def test_a_stream_deleted_under_a_live_reader(
    follower: Follower, view: Memory, connection: Connection, eventually: Eventually
) -> None:
    await write(connection, numbered(0, 20))
    await follower.start()
    await follower.wait(lambda: len(view.bodies()) == 20 or None, timeout=PATIENCE)
    await connection.delete_queue(STREAM)

    async def exists() -> bool:
        return await connection.passive(STREAM) is not None

    await eventually(exists)
    await write(connection, new := numbered(0, 3, "b"))
    await follower.wait(lambda: view.bodies() == new or None, timeout=PATIENCE)
    assert view.renewals == 1


async def test_a_trimmed_head_is_reported_and_nothing_else_is_forgotten(
    link: Link, settings: Settings, view: Memory, broker: Broker
) -> None:
    connection = await link.connection()
    small = settings.model_copy(update={"streams": {STREAM: {"max_bytes": 40_000, "segment_bytes": 10_000}}})
    await topology.ensure_stream(connection, small, STREAM)
    follower = Follower(link, view, STREAM, clock=SystemClock())
    await write(connection, numbered(0, 5))
    await follower.start()
    await follower.wait(lambda: len(view.bodies()) == 5 or None, timeout=PATIENCE)
    await follower.stop()
    publisher = await connection.publisher()
    last = b""
    for n in range(300):
        last = json.dumps({"n": n, "pad": "x" * (100_000 if broker.lavinmq else 1000)}).encode()  # segments of 8 MiB
        await publisher.publish(Outgoing(last, "", STREAM))
    await follower.start()
    await follower.wait(lambda: view.bodies()[-1] == last or None, timeout=PATIENCE)
    [first] = view.trims
    assert view.messages[5].offset == first > 5
    assert view.bodies()[:5] == numbered(0, 5)
    assert view.renewals == 0
    await follower.stop()


async def test_connections_closed_by_force(
    settings: Settings, connection: Connection, view: Memory, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    link = Link(settings, "reader", SystemClock())
    await link.start()
    follower = Follower(link, view, STREAM, clock=SystemClock())
    await follower.start()
    await write(connection, numbered(0, 100))
    await follower.wait_caught_up(PATIENCE)
    before = await link.connection()

    async def closed() -> bool:
        await asyncio.to_thread(broker.close_connections, vhost, named="reader")
        return before.lost.done()

    await eventually(closed)
    await write(connection, numbered(100, 100))
    await follower.wait(lambda: len(view.bodies()) >= 200 or None, timeout=PATIENCE)
    assert view.bodies() == numbered(0, 200)
    assert view.renewals == 0
    await follower.stop()
    await link.stop()


async def test_a_broker_restarted_under_it(node: PrivateNode, view: Memory, settings: Settings) -> None:
    settings = settings.model_copy(update={"url": node.url, "management_url": node.management_url})
    link = Link(settings, "reader", SystemClock())
    await link.start()
    follower = Follower(link, view, STREAM, clock=SystemClock())
    await topology.ensure(await link.connection(), settings)
    await write(await link.connection(), numbered(0, 50))
    await follower.start()
    await follower.wait(lambda: len(view.bodies()) == 50 or None, timeout=PATIENCE)
    await node.stop()
    assert follower.behind_since is not None
    assert not follower.caught_up
    await node.start()
    await write(await link.connection(timeout=PATIENCE), numbered(50, 50))
    await follower.wait(lambda: len(view.bodies()) >= 100 or None, timeout=PATIENCE)
    assert view.bodies() == numbered(0, 100)
    assert view.renewals == 0
    await follower.stop()
    await link.stop()
