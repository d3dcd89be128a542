"""When a channel that confirms nothing is given up."""

from __future__ import annotations

import asyncio
import time

import pytest

from amqpjobs.streams import vigil
from amqpjobs.streams.errors import ConnectionLost
from amqpjobs.streams.vigil import SILENT_CHECKS, Vigil
from tests.conftest import Eventually

CHECK = 0.01


class Channel:
    """What a vigil is told of one."""

    def __init__(self) -> None:
        self.under_way = 1
        self.settled = 0
        self.held = False
        self.ended: list[ConnectionLost] = []
        self.looks = 0
        self.vigil = Vigil(self._under_way, lambda: self.settled, lambda: self.held, self.ended.append)

    def _under_way(self) -> int:
        self.looks += 1
        return self.under_way


@pytest.fixture
async def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr(vigil, "CHECK_SECONDS", CHECK)
    return Channel()


async def test_it_ends_once_after_so_many_checks_without_an_answer(channel: Channel, eventually: Eventually) -> None:
    channel.vigil.watch()
    channel.vigil.watch()
    await eventually(lambda: bool(channel.ended))
    assert channel.looks == SILENT_CHECKS
    assert "confirmed nothing for 0.1 s" in str(channel.ended[0])
    await asyncio.sleep(5 * CHECK)
    assert len(channel.ended) == 1


@pytest.mark.parametrize("held", [False, True], ids=["one answer now and then", "an alarm"])
async def test_it_waits_while_there_is_progress_or_the_broker_takes_nothing(
    channel: Channel, eventually: Eventually, held: bool
) -> None:
    channel.held = held
    channel.vigil.watch()
    for _ in range(4):
        seen = channel.looks
        await eventually(lambda seen=seen: channel.looks >= seen + SILENT_CHECKS // 2)
        channel.settled += not held
    assert not channel.ended
    channel.held = False
    await eventually(lambda: bool(channel.ended))


async def test_it_sleeps_while_nothing_is_under_way(channel: Channel, eventually: Eventually) -> None:
    channel.under_way = 0
    channel.vigil.watch()
    await eventually(lambda: channel.looks == 1)
    await asyncio.sleep(5 * CHECK)
    assert channel.looks == 1
    channel.under_way = 1
    channel.vigil.watch()
    await eventually(lambda: bool(channel.ended))


async def test_a_loop_that_was_held_up_has_not_waited(channel: Channel, eventually: Eventually) -> None:
    """The answers may lie in the socket all the while."""
    channel.vigil.watch()
    time.sleep(3 * SILENT_CHECKS * CHECK)  # noqa: ASYNC251 - that is the point
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not channel.ended
    channel.under_way = 0
    await eventually(lambda: channel.looks > 0)


async def test_stopped_it_says_nothing(channel: Channel) -> None:
    channel.vigil.watch()
    channel.vigil.stop()
    channel.vigil.stop()
    await asyncio.sleep(2 * SILENT_CHECKS * CHECK)
    assert not channel.ended
