"""How the calls of one `enqueue_many` are parted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqpjobs.batch import LAST, LONG, WINDOW, Bulk, Call, PartlyEnqueued
from amqpjobs.streams.errors import BrokerUnavailable, Nacked
from amqpjobs.streams.port import Outgoing, Properties


def message(call: Call) -> Outgoing:
    if call == "bad":
        raise ValueError("bad")
    return Outgoing(b"{}", "", "q", Properties(message_id=str(call)))


def parted(bulk: Bulk) -> tuple[list[int], list[str]]:
    """The sizes of the windows and of the last part, each settled at once; all of their jids."""
    sizes, jids = [], []
    while window := bulk.read():
        sizes.append(len(window))
        jids += [str(each.properties.message_id) for each in window]
        bulk.settled(window, {})
    last = bulk.last()
    bulk.settled(last, {})
    return [*sizes, len(last)], jids + [str(each.properties.message_id) for each in last]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, [0]),
        (1, [1, 0]),
        (LONG, [LONG, 0]),
        (LONG + 1, [LONG + 1 - LAST, LAST]),
        (WINDOW, [WINDOW - LAST, LAST]),
        (WINDOW + 1, [WINDOW + 1 - LAST, LAST]),
        (WINDOW + LAST, [WINDOW, LAST]),
        (WINDOW + LAST + 1, [WINDOW, 1, LAST]),
        (3 * WINDOW, [WINDOW, WINDOW, WINDOW - LAST, LAST]),
    ],
)
def test_the_last_ten_of_a_long_call_are_a_part_of_their_own(count: int, sizes: list[int]) -> None:
    names = [f"j{n}" for n in range(count)]
    bulk = Bulk(names, message)
    assert parted(bulk) == (sizes, names)
    assert bulk.result() == names
    assert bulk.last() == [], "once"


def test_what_was_read_and_not_sent_is_told() -> None:
    read: list[str] = []

    def calls() -> Iterator[Call]:
        for n in range(5 * WINDOW):
            read.append(f"j{n}")
            yield read[-1]

    bulk = Bulk(calls(), message)
    window = bulk.read()
    bulk.settled(window, {3: Nacked("no room")})
    assert bulk.read() == bulk.last() == []
    with pytest.raises(PartlyEnqueued) as caught:
        bulk.result()
    told = caught.value
    assert sorted([*told.confirmed, *told.unconfirmed]) == sorted(read)
    assert isinstance(told.unconfirmed["j3"], Nacked)
    assert {type(told.unconfirmed[f"j{n}"]) for n in range(WINDOW, WINDOW + LAST)} == {BrokerUnavailable}


@pytest.mark.parametrize("at", [0, 3, WINDOW - 1, WINDOW, WINDOW + LAST, 2 * WINDOW])
def test_a_wrong_call_ends_the_reading_before_its_window(at: int) -> None:
    bulk = Bulk([f"j{n}" if n != at else "bad" for n in range(3 * WINDOW)], message)
    sizes, jids = parted(bulk)
    assert jids == [f"j{n}" for n in range(at // WINDOW * WINDOW)]
    assert sizes[-1] == 0
    with pytest.raises(ValueError if at < WINDOW else PartlyEnqueued, match="bad") as caught:
        bulk.result()
    if isinstance(caught.value, PartlyEnqueued):
        assert list(caught.value.unconfirmed) == [f"j{n}" for n in range(at // WINDOW * WINDOW, at)], "read, not sent"


def test_of_a_last_part_that_fails_the_rest_is_confirmed() -> None:
    bulk = Bulk([f"j{n}" for n in range(LONG + 1)], message)
    bulk.settled(bulk.read(), {})
    assert bulk.read() == []
    bulk.settled(bulk.last(), {LAST - 1: Nacked("no room")})
    with pytest.raises(PartlyEnqueued) as caught:
        bulk.result()
    assert caught.value.confirmed == [f"j{n}" for n in range(LONG)]
    assert list(caught.value.unconfirmed) == [f"j{LONG}"]
