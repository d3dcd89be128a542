"""The bytes of AMQP 0-9-1 that are per message, read and written with `struct`. Everything else is pamqp's."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from pamqp import decode, encode

from amqpjobs.streams.port import NO_HEADERS, OFFSET_HEADER, Properties, Scalar

FRAME = struct.Struct(">BHI")
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
FRAME_OVERHEAD = FRAME.size + 1
HEARTBEAT_FRAME = FRAME.pack(HEARTBEAT, 0, 0) + bytes([END])

DELIVER, RETURN, ACK, NACK = 0x003C003C, 0x003C0032, 0x003C0050, 0x003C0078
METHOD_ID = struct.Struct(">I")
TAG_AND_BIT = struct.Struct(">QB")

_HEADER = struct.Struct(">HHQH")  # class, weight, body size, property flags
_CONTENT = struct.Struct(">BHIHHQ")  # a header frame up to the properties
_BODY_AFTER = struct.Struct(">BBHI")  # the end of a header frame and the start of a body's
_ACK = struct.Struct(">BHIIQBB")
_BASIC = 60
TURN = 50
"""Deliveries handed over in one turn of the loop. One read of a socket may bring a thousand, which would hold up all
else for 30 ms: a dashboard's pages, a worker's jobs that have ended."""
_PERSISTENT = 2

_ONLY_OFFSET = b"\x0f" + OFFSET_HEADER.encode() + b"l"  # a table with that name alone and a 64-bit integer
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY = 0x8000, 0x4000, 0x2000, 0x1000, 0x0800
_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID, _TIMESTAMP, _TYPE = 0x0400, 0x0200, 0x0100, 0x0080, 0x0040, 0x0020
_BITS = (
    _CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY, _CORRELATION_ID, _REPLY_TO, _EXPIRATION,
    _MESSAGE_ID, _TIMESTAMP, _TYPE,
)  # fmt: skip
_WIDTHS = {_DELIVERY_MODE: 1, _TIMESTAMP: 8}
_SET_BITS = [tuple(bit for bit in _BITS if (flags << 5) & bit) for flags in range(2**11)]
"""Which properties a message has, by the upper eleven of its flags; those of user, app and cluster come last."""
_INT64 = struct.Struct(">q")
_ONLY_OFFSET_TABLE = struct.pack(">I", len(_ONLY_OFFSET) + _INT64.size) + _ONLY_OFFSET


class BadFrame(Exception):
    """The peer sent what is no AMQP: the connection cannot go on."""


class Sink(Protocol):
    """Takes frames."""

    def frame(self, kind: int, channel: int, buffer: bytes, start: int, end: int) -> int | None:
        """One frame whose payload is `buffer[start:end]`; may raise BadFrame.

        Who took the frames behind it too says where the next one begins.
        """
        ...


class Parser:
    """Cuts a byte stream into frames, however the bytes are split up. `limit`: the largest payload in bytes."""

    def __init__(self, sink: Sink, limit: int) -> None:
        self.limit = limit
        self.left = 0
        """Deliveries that may still be handed over before `feed` returns; who takes one counts it down."""
        self._sink = sink
        self._rest = b""

    def feed(self, data: bytes) -> bool:
        """Take in what was read and hand over the whole frames, of deliveries at most `TURN`.

        Whether there may be more: then call it again, with nothing, in a later turn of the loop. Raises BadFrame, also
        for what a frame holds.
        """
        buffer = self._rest + data if self._rest else data
        at, length = 0, len(buffer)
        self.left = TURN
        header, take = FRAME.unpack_from, self._sink.frame
        try:
            while self.left > 0 and length - at >= FRAME_OVERHEAD:
                kind, channel, size = header(buffer, at)
                if size > self.limit:
                    raise BadFrame(f"a frame of {size} bytes, over the {self.limit} that were agreed")
                end = at + FRAME.size + size
                if end >= length:
                    break
                if buffer[end] != END:
                    raise BadFrame("a frame that does not end where it says")
                at = take(kind, channel, buffer, at + FRAME.size, end) or end + 1
        except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
            raise BadFrame(f"a frame that cannot be read: {error}") from None
        self._rest = buffer[at:]
        return self.left <= 0 and at < length


def short_text(buffer: bytes, at: int, end: int) -> tuple[str, int]:
    """A short string and where the next field begins."""
    stop = at + 1 + buffer[at]
    if stop > end:
        raise BadFrame("a string that is longer than its frame")
    return buffer[at + 1 : stop].decode("utf-8", "replace"), stop


class Deliver(NamedTuple):
    """The method frame of a delivery."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str


def read_deliver(buffer: bytes, start: int, end: int) -> Deliver:
    """`start` is behind the method's number. The consumer tag is skipped: a channel has one consumer."""
    at = start + 1 + buffer[start]
    tag, redelivered = TAG_AND_BIT.unpack_from(buffer, at)
    exchange, at = short_text(buffer, at + TAG_AND_BIT.size, end)
    routing_key, at = short_text(buffer, at, end)
    return Deliver(tag, bool(redelivered & 1), exchange, routing_key)


def read_return(buffer: bytes, start: int, end: int) -> tuple[str, str, str]:
    """Why, exchange and routing key of a returned message; `start` is behind the method's number."""
    reason, at = short_text(buffer, start + 2, end)
    exchange, at = short_text(buffer, at, end)
    routing_key, at = short_text(buffer, at, end)
    return reason, exchange, routing_key


class Header(NamedTuple):
    """A content header."""

    size: int
    properties: Properties
    offset: int | None


def read_header(buffer: bytes, start: int, end: int) -> Header:
    """The properties that we know, and a stream message's offset. Headers that are no scalars are left out."""
    _, _, size, flags = _HEADER.unpack_from(buffer, start)
    at = start + _HEADER.size
    if flags & 1:
        raise BadFrame("more property flags than there are properties")
    texts: dict[int, str] = {}
    priority: int | None = None
    headers, offset = NO_HEADERS, None
    for bit in _SET_BITS[flags >> 5]:
        if bit == _HEADERS:
            headers, offset, at = _read_table(buffer, at, end)
        elif bit == _PRIORITY:
            priority, at = buffer[at], at + 1
        elif bit in _WIDTHS:
            at += _WIDTHS[bit]
        else:
            texts[bit], at = short_text(buffer, at, end)
    if at > end:
        raise BadFrame("a content header that is shorter than its properties")
    get = texts.get
    known = Properties(
        get(_MESSAGE_ID), get(_CORRELATION_ID), get(_REPLY_TO), get(_CONTENT_TYPE), get(_CONTENT_ENCODING),
        priority, get(_TYPE), headers,
    )  # fmt: skip
    return Header(size, known, offset)


def _read_table(buffer: bytes, at: int, end: int) -> tuple[Mapping[str, Scalar], int | None, int]:
    """Headers, the stream offset among them, and where the next field begins."""
    if buffer.startswith(_ONLY_OFFSET_TABLE, at):
        stop = at + len(_ONLY_OFFSET_TABLE) + _INT64.size
        return NO_HEADERS, _INT64.unpack_from(buffer, at + len(_ONLY_OFFSET_TABLE))[0], stop
    stop = at + 4 + METHOD_ID.unpack_from(buffer, at)[0]
    if stop > end:
        raise BadFrame("a header table that is longer than its frame")
    try:
        _, table = decode.field_table(buffer[at:stop])
    except Exception as error:  # pamqp raises what its parts raise
        raise BadFrame(f"a header table that cannot be read: {error}") from None
    scalars: dict[str, Scalar] = {}
    for name, value in table.items():
        if isinstance(value, bytes | bytearray):
            scalars[str(name)] = bytes(value).decode("utf-8", "replace")
        elif value is None or isinstance(value, str | int | float):
            scalars[str(name)] = value
    offset = scalars.pop(OFFSET_HEADER, None)
    return scalars, offset if isinstance(offset, int) else None, stop


def write_ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """An acknowledgement."""
    return _ACK.pack(METHOD, channel, 13, ACK, tag, multiple, END)


def write_nack(channel: int, tag: int, *, requeue: bool) -> bytes:
    """A refusal of one message."""
    return _ACK.pack(METHOD, channel, 13, NACK, tag, 2 if requeue else 0, END)


def write_publish(channel: int, exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
    """The method frame of a publish. Raises ValueError for a name over 255 bytes."""
    names = _short(exchange) + _short(routing_key)
    payload = METHOD_ID.pack(0x003C0028) + b"\0\0" + names + (b"\1" if mandatory else b"\0")
    return FRAME.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def write_content(channel: int, properties: bytes, body: bytes, limit: int) -> list[bytes]:
    """The header and body frames of a message, in parts that are to be joined.

    `properties` is `write_properties`'; `limit` the largest payload.
    """
    size = len(body)
    header = _CONTENT.pack(HEADER, channel, 12 + len(properties), _BASIC, 0, size)
    if not size:
        return [header, properties, b"\xce"]
    if size <= limit:
        return [header, properties, _BODY_AFTER.pack(END, BODY, channel, size), body, b"\xce"]
    parts = [header, properties, b"\xce"]
    for at in range(0, size, limit):
        piece = body[at : at + limit]
        parts += [FRAME.pack(BODY, channel, len(piece)), piece, b"\xce"]
    return parts


def write_properties(properties: Properties) -> bytes:
    """Flags and values, always persistent. Raises ValueError or struct.error for what AMQP cannot carry."""
    message_id = properties.message_id
    if message_id is None or _more_than_an_id(properties):
        return _write_properties(properties)
    return _before_id(properties.content_type, properties.priority) + _short(message_id)


def _more_than_an_id(properties: Properties) -> bool:
    return bool(properties.headers) or not (
        properties.correlation_id is properties.reply_to is properties.content_encoding is properties.type is None
    )


@functools.lru_cache(256, typed=True)
def _before_id(content_type: str | None, priority: int | None) -> bytes:
    """What most messages have in common, up to the message id, which is their last property."""
    empty = _write_properties(Properties(message_id="", content_type=content_type, priority=priority))
    return empty[:-1]


def _write_properties(properties: Properties) -> bytes:
    flags, parts = _DELIVERY_MODE, []
    if properties.content_type is not None:
        flags |= _CONTENT_TYPE
        parts.append(_short(properties.content_type))
    if properties.content_encoding is not None:
        flags |= _CONTENT_ENCODING
        parts.append(_short(properties.content_encoding))
    if properties.headers:
        flags |= _HEADERS
        parts.append(_table(properties.headers))
    parts.append(bytes([_PERSISTENT]))
    if properties.priority is not None:
        flags |= _PRIORITY
        parts.append(struct.pack(">B", properties.priority))
    for bit, value in (
        (_CORRELATION_ID, properties.correlation_id),
        (_REPLY_TO, properties.reply_to),
        (_MESSAGE_ID, properties.message_id),
        (_TYPE, properties.type),
    ):
        if value is not None:
            flags |= bit
            parts.append(_short(value))
    return struct.pack(">H", flags) + b"".join(parts)


def _table(headers: Mapping[str, Scalar]) -> bytes:
    table: Any = dict(headers)
    return encode.field_table(table)


def _short(text: str) -> bytes:
    raw = text.encode("utf-8")
    if len(raw) > 255:
        raise ValueError(f"{len(raw)} bytes are too many for an AMQP name or id: it takes 255")
    return bytes([len(raw)]) + raw
