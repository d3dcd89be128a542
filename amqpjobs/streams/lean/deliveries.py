"""Deliveries read whole, where all of their frames are there already: doing without three calls and a state for each
makes half of what it costs. Those that are alike are read by one `unpack` each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from amqpjobs.streams.lean.wire import (
    BODY,
    DELIVER,
    END,
    FRAME,
    HEADER,
    METHOD,
    METHOD_ID,
    TAG_AND_BIT,
    Parser,
    read_header,
    short_text,
)
from amqpjobs.streams.port import Incoming, Properties

MOST_PLACES = 1000
"""Exchanges and routing keys remembered by a consumer."""
MOST_SHAPES = 100
"""Properties remembered by a consumer, of messages that have no id of their own."""

_WHOLE_HEADER = struct.Struct(">BHIHHQH")  # a frame's own header; class, weight, body size, property flags
_DELIVER = METHOD_ID.pack(DELIVER)
_PROPERTIES = _WHOLE_HEADER.size - 2
"""Where a header frame's properties begin: with their flags."""
_BODY_SIZE = _PROPERTIES - 8
"""Where in it the size of the body is."""
_JSON_WITH_ID = b"\x90\x80\x10application/json\x02"
"""The properties of most jobs as far as they are the same: content type and delivery mode; their id follows."""
_JSON_AFTER_ID = Properties()[1:]
_new = tuple.__new__
"""What a named tuple's own does beyond it takes twice as long."""


class _Layout:
    """Where everything is in deliveries of one consumer tag with ids of one length, and the bytes that stay the same.

    `unpack` gives: all up to the delivery tag, that, the redelivered bit, exchange and key, up to the body's size,
    that, up to the id, that, up to the body's size again, that. `size`: where the body begins.
    """

    __slots__ = ("before_body", "before_id", "before_size", "before_tag", "size", "unpack")

    def __init__(self, buffer: bytes, start: int, end: int, foot: int) -> None:
        """Of a delivery that was read: its method's payload is `buffer[start:end]`, its header frame ends at `foot`."""
        tag = start + METHOD_ID.size + 1 + buffer[start + METHOD_ID.size]
        size = end + 1 + _BODY_SIZE
        known = end + 1 + _PROPERTIES
        named = known + len(_JSON_WITH_ID) + 1
        self.before_tag = buffer[start - FRAME.size : tag]
        self.before_size = buffer[end:size]
        self.before_id = buffer[known:named]
        self.before_body = buffer[foot : foot + 4]
        place = end - tag - TAG_AND_BIT.size
        packed = struct.Struct(
            f">{len(self.before_tag)}sQB{place}s{len(self.before_size)}sQ{len(self.before_id)}s{foot - named}s4sI"
        )
        self.size = packed.size
        self.unpack = packed.unpack_from


class Deliveries:
    """Reads whole deliveries of one channel."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._method = struct.pack(">BH", METHOD, channel)
        self._shapes: dict[bytes, Properties] = {}
        self._places: dict[bytes, tuple[str, str]] = {}
        self._layout: _Layout | None = None
        self._lengths = (0, 0)

    def read(self, buffer: bytes, start: int, parser: Parser, take: Callable[[Incoming], None]) -> int | None:
        """Hand over the delivery whose method frame has its payload at `start`, with those that follow it.

        Returns where the next frame begins. None where the frames of the first are not all there, or not what they
        mostly are: then they are read one by one, and what is wrong with them is found.
        """
        begin = at = start - FRAME.size
        while parser.left > 0:
            if self._layout is not None:
                at = self._alike(self._layout, buffer, at, parser, take)
                if parser.left <= 0:
                    break
            after = self._one(buffer, at, parser.limit, take)
            if after is None:
                break
            parser.left -= 1
            at = after
        return at if at != begin else None

    def _alike(self, layout: _Layout, buffer: bytes, at: int, parser: Parser, take: Callable[[Incoming], None]) -> int:
        """Hand over those from `at` on that have this layout; where the next frame begins."""
        unpack, size, length = layout.unpack, layout.size, len(buffer)
        before_tag, before_size = layout.before_tag, layout.before_size
        before_id, before_body = layout.before_id, layout.before_body
        left, limit, places = parser.left, parser.limit, self._places
        while left > 0 and at + size < length:
            head, tag, redelivered, place, middle, long, known, named, foot, again = unpack(buffer, at)
            body = at + size
            stop = body + long
            if (
                head != before_tag or middle != before_size or known != before_id or foot != before_body
                or long != again or not 0 < long <= limit or stop >= length or buffer[stop] != END
                or place not in places or not named.isascii()
            ):  # fmt: skip
                break
            exchange, key = places[place]
            left -= 1
            properties = _new(Properties, (named.decode(), *_JSON_AFTER_ID))
            take(_new(Incoming, (buffer[body:stop], tag, exchange, key, redelivered & 1 == 1, properties, None)))
            at = stop + 1
        parser.left = left
        return at

    def _one(self, buffer: bytes, at: int, limit: int, take: Callable[[Incoming], None]) -> int | None:
        """Hand over the one whose method frame begins at `at`, if that is one and all of it is there."""
        start = at + FRAME.size
        if not buffer.startswith(self._method, at) or not buffer.startswith(_DELIVER, start):
            return None
        end = start + METHOD_ID.unpack_from(buffer, start - METHOD_ID.size)[0]
        head = end + 1
        if end - start > limit or len(buffer) < head + _WHOLE_HEADER.size or buffer[end] != END:
            return None
        kind, channel, size, _, _, length, _ = _WHOLE_HEADER.unpack_from(buffer, head)
        foot = head + FRAME.size + size
        body = foot + 1 + FRAME.size
        stop: int = body + length
        if kind != HEADER or channel != self._channel or not 0 < length <= limit or len(buffer) <= stop:
            return None
        if FRAME.unpack_from(buffer, foot + 1) != (BODY, channel, length) or buffer[foot] != END or buffer[stop] != END:
            return None
        found, offset = self._properties(buffer, start, end, foot)
        at = start + METHOD_ID.size + 1 + buffer[start + METHOD_ID.size]
        tag, redelivered = TAG_AND_BIT.unpack_from(buffer, at)
        place = buffer[at + TAG_AND_BIT.size : end]
        exchange, key = self._places.get(place) or self._place(place)
        take(_new(Incoming, (buffer[body:stop], tag, exchange, key, redelivered & 1 == 1, found, offset)))
        return stop + 1

    def _properties(self, buffer: bytes, start: int, end: int, foot: int) -> tuple[Properties, int | None]:
        properties = end + 1 + _PROPERTIES
        if buffer.startswith(_JSON_WITH_ID, properties):
            at = properties + len(_JSON_WITH_ID)
            if at + 1 + buffer[at] == foot:
                self._learn(buffer, start, end, foot)
                named = buffer[at + 1 : foot].decode("utf-8", "replace")
                return _new(Properties, (named, *_JSON_AFTER_ID)), None
        raw = buffer[properties:foot]
        known = self._shapes.get(raw)
        if known is not None:
            return known, None
        header = read_header(buffer, end + 1 + FRAME.size, foot)
        if header.offset is None and header.properties.message_id is None and len(self._shapes) < MOST_SHAPES:
            self._shapes[raw] = header.properties
        return header.properties, header.offset

    def _learn(self, buffer: bytes, start: int, end: int, foot: int) -> None:
        """Expect more like this one, once there were two in a row."""
        lengths = end - start, foot - end
        if lengths == self._lengths:
            self._layout = _Layout(buffer, start, end, foot)
        self._lengths = lengths

    def _place(self, raw: bytes) -> tuple[str, str]:
        """Exchange and routing key, which are mostly the same as before."""
        exchange, at = short_text(raw, 0, len(raw))
        found = exchange, short_text(raw, at, len(raw))[0]
        if len(self._places) < MOST_PLACES:
            self._places[raw] = found
        return found
