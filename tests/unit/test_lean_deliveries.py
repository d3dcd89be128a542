"""Deliveries that are alike are read at one go, and it makes no difference: not to what they are, nor to what is wrong
with them, however the bytes are cut up."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.streams.lean import deliveries
from amqpjobs.streams.lean.deliveries import Deliveries
from amqpjobs.streams.lean.wire import BadFrame, Parser
from amqpjobs.streams.port import Incoming, Properties
from tests.unit.test_lean_wire import consumed, outcome
from tests.unit.test_lean_wire import delivery as written


class Job(NamedTuple):
    """What may differ between the deliveries of a queue."""

    named: str = "0123456789abcdef01234567"
    body: bytes = b'{"class":"X"}'
    key: str = "default"
    redelivered: bool = False
    consumer: str = "amqpjobs-3-1"
    priority: int | None = None


def delivery(tag: int, job: Job) -> bytes:
    known = properties(job)
    return written(tag, job.body, known, consumer=job.consumer, key=job.key, redelivered=job.redelivered)


def properties(job: Job) -> Properties:
    return Properties(message_id=job.named, content_type="application/json", priority=job.priority)


def incoming(tag: int, job: Job) -> Incoming:
    return Incoming(job.body, tag, "jobs.direct", job.key, job.redelivered, properties(job), None)


jobs = st.builds(
    Job,
    # of the same length in bytes or not, also where that is not their length in characters
    named=st.sampled_from(["aaaaaaaa", "bbbbbbbb", "c", "\xe4\xf6\xfc\xdf", "d" * 255]),
    body=st.binary(min_size=1, max_size=30),
    key=st.sampled_from(["default", "default", "default", "another", "low"]),
    redelivered=st.booleans(),
    consumer=st.sampled_from(["amqpjobs-3-1", "amqpjobs-3-1", "amqpjobs-3-1", "amqpjobs-3-2", "amqpjobs-3-10"]),
    priority=st.sampled_from([None, None, None, 4]),
)


@given(batch=st.lists(jobs, max_size=12), cuts=st.lists(st.integers(0, 3000), max_size=4))
def test_what_comes_is_what_was_sent(batch: list[Job], cuts: list[int]) -> None:
    data = b"".join(delivery(tag, job) for tag, job in enumerate(batch, 1))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert consumed(*(data[a:b] for a, b in pairwise(edges))) == [
        incoming(tag, job) for tag, job in enumerate(batch, 1)
    ]


ALIKE = [Job(f"{n:024x}", b'{"n":%d}' % n, redelivered=n % 2 == 1) for n in range(10)]
RAW = b"".join(delivery(tag, job) for tag, job in enumerate(ALIKE, 1))


def test_those_that_are_alike_are_read_at_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = 0
    read = Deliveries._one

    def counted(*args: object) -> int | None:
        nonlocal one_by_one
        one_by_one += 1
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Deliveries, "_one", counted)
    assert consumed(RAW) == [incoming(tag, job) for tag, job in enumerate(ALIKE, 1)]
    assert one_by_one == 2 + 1, "two to learn from; then nothing follows"


@given(st.integers(0, len(RAW) - 1), st.integers(0, 255))
def test_a_wrong_byte_among_many_alike_is_what_it_is_frame_by_frame(at: int, byte: int) -> None:
    raw = bytearray(RAW)
    raw[at] = byte
    found = outcome(bytes(raw))
    assert found == outcome(*(bytes(raw[n : n + 1]) for n in range(len(raw)))) or found == "BadFrame"


def test_a_body_over_the_limit_is_a_bad_frame_among_many_alike_too() -> None:
    large = delivery(11, Job(body=b"x" * 101))
    with pytest.raises(BadFrame, match="over the 100"):
        consumed(RAW + large, limit=100)


@pytest.mark.parametrize("known", [0, 1, 2, 9])
def test_deliveries_that_break_off_are_read_as_far_as_they_are_there(known: int) -> None:
    """`known` of them came before; of the next there is each part once."""
    at = sum(len(delivery(tag, job)) for tag, job in enumerate(ALIKE[:known], 1))
    end = at + len(delivery(known + 1, ALIKE[known]))
    for cut in range(at, end + 1):
        expected = [incoming(tag, job) for tag, job in enumerate(ALIKE[: known + (cut == end)], 1)]
        assert consumed(RAW[:cut]) == expected


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MOST_PLACES", 3)
    reader, got = Deliveries(3), list[Incoming]()

    class Sink:
        def frame(self, kind: int, channel: int, buffer: bytes, start: int, end: int) -> int | None:
            return reader.read(buffer, start, parser, got.append)

    parser = Parser(Sink(), 131_072)
    batch = [Job(key=f"queue{n % 10}") for n in range(40)]
    parser.feed(b"".join(delivery(tag, job) for tag, job in enumerate(batch, 1)))
    assert [each.routing_key for each in got] == [job.key for job in batch]
    assert len(reader._places) == 3


def test_ids_of_no_text_do_not_end_the_connection() -> None:
    """Not even among many alike: what is no UTF-8 is replaced."""
    raw = RAW.replace(ALIKE[5].named.encode(), b"\xff" * 24)
    assert [each.properties.message_id for each in consumed(raw)][4:7] == [
        ALIKE[4].named,
        "\ufffd" * 24,
        ALIKE[6].named,
    ]


def test_a_size_beyond_any_message_is_not_taken_for_one() -> None:
    """A body size of 2**63 in the header of one that looks like the others."""
    third = len(delivery(1, ALIKE[0])) + len(delivery(2, ALIKE[1]))
    at = RAW.index(struct.pack(">Q", len(ALIKE[2].body)), third)
    raw = RAW[:at] + struct.pack(">Q", 2**63) + RAW[at + 8 :]
    assert outcome(raw) == outcome(*(raw[n : n + 1] for n in range(len(raw))))
