"""The lean driver's bytes: what it writes is what pamqp writes, what it reads is the same however it is cut up, and
what is no AMQP is a BadFrame and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body as pamqp_body
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from amqpjobs.streams.lean import wire
from amqpjobs.streams.lean.consumer import LeanConsumer
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import BadFrame, Parser
from amqpjobs.streams.port import Incoming, Properties, Scalar


@dataclass
class Frames:
    """A sink that keeps what it is given."""

    got: list[tuple[int, int, bytes]] = field(default_factory=list)

    def frame(self, kind: int, channel: int, buffer: bytes, start: int, end: int) -> None:
        self.got.append((kind, channel, buffer[start:end]))


def parsed(*pieces: bytes, limit: int = 131_072) -> list[tuple[int, int, bytes]]:
    frames = Frames()
    parser = Parser(frames, limit)
    for piece in pieces:
        parser.feed(piece)
    return frames.got


short = st.text(max_size=40)
scalars = st.one_of(st.text(max_size=20), st.integers(-(2**62), 2**62), st.booleans(), st.none())
properties = st.builds(
    Properties,
    message_id=st.none() | short,
    correlation_id=st.none() | short,
    reply_to=st.none() | short,
    content_type=st.none() | short,
    content_encoding=st.none() | short,
    priority=st.none() | st.integers(0, 255),
    type=st.none() | short,
    headers=st.dictionaries(st.text(min_size=1, max_size=20), scalars, max_size=4),
)


def _nothing_empty(known: Properties) -> bool:
    """pamqp does not write what is empty or 0."""
    return "" not in (each for each in known if isinstance(each, str)) and known.priority != 0


def delivery(
    tag: int, body: bytes, known: Properties, channel: int = 3, *,
    consumer: str = "tag", key: str = "default", redelivered: bool = True,
) -> bytes:  # fmt: skip
    """A whole delivery, written by pamqp."""
    theirs = commands.Basic.Properties(
        content_type=known.content_type,
        content_encoding=known.content_encoding,
        headers=dict(known.headers) or None,
        delivery_mode=2,
        priority=known.priority,
        correlation_id=known.correlation_id,
        reply_to=known.reply_to,
        message_id=known.message_id,
        message_type=known.type,
    )
    parts = [
        pamqp_frame.marshal(commands.Basic.Deliver(consumer, tag, redelivered, "jobs.direct", key), channel),
        pamqp_frame.marshal(header.ContentHeader(0, len(body), theirs), channel),
    ]
    return b"".join([*parts, pamqp_frame.marshal(pamqp_body.ContentBody(body), channel)])


@given(known=properties, body=st.binary(max_size=50))
def test_what_it_writes_reads_back_and_pamqp_reads_it_too(known: Properties, body: bytes) -> None:
    written = wire.write_publish(7, "x", "k", mandatory=True)
    written += b"".join(wire.write_content(7, wire.write_properties(known), body, limit=16))
    kinds = [frame[0] for frame in parsed(written)]
    assert kinds == [wire.METHOD, wire.HEADER] + [wire.BODY] * (-(-len(body) // 16))
    method, head, *bodies = parsed(written)
    _, _, publish = pamqp_frame.unmarshal(written)
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == ("x", "k", True)
    assert method[1] == 7
    assert b"".join(payload for _, _, payload in bodies) == body
    read = wire.read_header(head[2], 0, len(head[2]))
    assert read == wire.Header(len(body), known, None)


@given(known=properties.filter(_nothing_empty), body=st.binary(max_size=60), tag=st.integers(0, 2**63 - 1))
def test_it_reads_what_pamqp_writes(known: Properties, body: bytes, tag: int) -> None:
    method, head, content = parsed(delivery(tag, body, known))
    deliver = wire.read_deliver(method[2], 4, len(method[2]))
    assert deliver == wire.Deliver(tag, True, "jobs.direct", "default")
    assert wire.read_header(head[2], 0, len(head[2])) == wire.Header(len(body), known, None)
    assert content[2] == body


def test_frames_cut_at_every_byte_are_the_same_frames() -> None:
    data = delivery(1, b"hello", Properties(message_id="m", headers={"a": 1})) + wire.HEARTBEAT_FRAME
    data += delivery(2, b"", Properties())
    whole = parsed(data)
    assert len(whole) == 7
    for cut in range(len(data) + 1):
        assert parsed(data[:cut], data[cut:]) == whole
    assert parsed(*(data[n : n + 1] for n in range(len(data)))) == whole


def consumed(*pieces: bytes, limit: int = 131_072) -> list[Incoming]:
    """What a consumer on channel 3 makes of these bytes."""

    async def consume() -> list[Incoming]:
        socket, got = Socket(), list[Incoming]()
        consumer = LeanConsumer(socket, 3, got.append, answers_cancel=False)
        consumer._release_early()
        socket.parser.limit = limit
        for piece in pieces:
            more = socket.parser.feed(piece)
            while more:
                more = socket.parser.feed(b"")
        return got

    return asyncio.run(consume())


batches = st.lists(st.tuples(st.binary(min_size=1, max_size=40), properties, st.integers(3, 4)), max_size=4)


@given(batch=batches, cuts=st.lists(st.integers(0, 1000), max_size=4))
def test_deliveries_are_the_same_read_whole_and_frame_by_frame(
    batch: list[tuple[bytes, Properties, int]], cuts: list[int]
) -> None:
    data = b"".join(delivery(n, body, known, channel) for n, (body, known, channel) in enumerate(batch, 1))
    data += delivery(9, b"{}", Properties("an id")) + delivery(10, b"[]", Properties(headers={"x-stream-offset": 7}))
    piece_by_piece = consumed(*(data[at : at + 1] for at in range(len(data))))
    assert len(piece_by_piece) == 2 + sum(channel == 3 for _, _, channel in batch)
    assert consumed(data) == piece_by_piece
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert consumed(*(data[a:b] for a, b in pairwise(edges))) == piece_by_piece
    assert [(each.tag, each.body) for each in piece_by_piece][-1] == (10, b"[]")


@given(data=st.data())
def test_a_delivery_with_a_wrong_byte_is_the_same_error_or_message_both_ways(data: st.DataObject) -> None:
    raw = bytearray(delivery(1, b"12345", Properties("id", headers={"a": 1})) + delivery(2, b"678", Properties("id")))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    whole = outcome(bytes(raw))
    assert whole == outcome(*(bytes(raw[at : at + 1]) for at in range(len(raw)))) or whole == "BadFrame"


def outcome(*pieces: bytes) -> object:
    """The messages that a consumer makes of these bytes, or that they are no AMQP."""
    try:
        return consumed(*pieces)
    except BadFrame:
        return "BadFrame"


def test_a_stream_offset_alone_and_among_other_headers() -> None:
    both: list[dict[str, Scalar]] = [{"x-stream-offset": 2**40}, {"x-stream-offset": 2**40, "a": "b"}]
    for headers in both:
        _, head, _ = parsed(delivery(1, b"", Properties(headers=headers)))
        read = wire.read_header(head[2], 0, len(head[2]))
        assert read.offset == 2**40
        assert dict(read.properties.headers) == {name: value for name, value in headers.items() if name == "a"}


def test_headers_that_are_no_scalars_are_left_out() -> None:
    headers: Any = {"list": [1, 2], "table": {"a": 1}, "text": "t"}
    theirs = commands.Basic.Properties(headers=headers)
    raw = pamqp_frame.marshal(header.ContentHeader(0, 0, theirs), 1)
    (frame,) = parsed(raw)
    assert dict(wire.read_header(frame[2], 0, len(frame[2])).properties.headers) == {"text": "t"}


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        wire.FRAME.pack(1, 1, 2**31) + b"x" * 20,
        wire.FRAME.pack(3, 1, 4) + b"bodyX",
    ],
)
def test_what_is_no_amqp_is_a_bad_frame(data: bytes) -> None:
    with pytest.raises(BadFrame):
        parsed(data)


@given(payload=st.binary(max_size=80), kind=st.sampled_from(["deliver", "return", "header"]))
def test_hostile_payloads_are_bad_frames_or_read_within_their_bounds(payload: bytes, kind: str) -> None:
    class Reading(Frames):
        def frame(self, kind_: int, channel: int, buffer: bytes, start: int, end: int) -> None:
            if kind == "deliver":
                wire.read_deliver(buffer, start, end)
            elif kind == "return":
                wire.read_return(buffer, start, end)
            else:
                wire.read_header(buffer, start, end)

    data = wire.FRAME.pack(1, 1, len(payload)) + payload + b"\xce"
    try:
        Parser(Reading(), 1000).feed(data + b"\xff" * 300)
    except BadFrame:
        return


@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_random_bytes_never_raise_anything_else(data: bytes, cut: int) -> None:
    try:
        parsed(data[:cut], data[cut:], limit=200)
    except BadFrame:
        return


@pytest.mark.parametrize(
    "bad", [Properties(message_id="x" * 300), Properties(priority=300), Properties(headers={"h": 2**80})]
)
def test_what_amqp_cannot_carry_is_not_written(bad: Properties) -> None:
    with pytest.raises(Exception, match=r"."):
        wire.write_properties(bad)
    with pytest.raises(ValueError, match="255"):
        wire.write_publish(1, "", "k" * 256, mandatory=True)


def test_acks_are_what_pamqp_writes() -> None:
    assert wire.write_ack(5, 9, multiple=True) == pamqp_frame.marshal(commands.Basic.Ack(9, True), 5)
    assert wire.write_ack(5, 9, multiple=False) == pamqp_frame.marshal(commands.Basic.Ack(9, False), 5)
    assert wire.write_nack(5, 9, requeue=True) == pamqp_frame.marshal(commands.Basic.Nack(9, False, True), 5)
    assert wire.write_nack(5, 9, requeue=False) == pamqp_frame.marshal(commands.Basic.Nack(9, False, False), 5)
