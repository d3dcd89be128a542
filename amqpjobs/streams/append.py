"""Appending to a stream, exactly once: every message carries who wrote it (`from`) and its number (`seq`)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from amqpjobs.clock import Clock
from amqpjobs.model import unwrapped
from amqpjobs.streams import topology
from amqpjobs.streams.channel import PublishingChannel
from amqpjobs.streams.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfirmTimeout,
    ConnectionLost,
    Nacked,
    NotFound,
    TooLarge,
    Unroutable,
    again,
)
from amqpjobs.streams.limits import largest_entry
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Properties, Scalar

log = logging.getLogger("amqpjobs.streams")

MESSAGE_BYTES = 1024 * 1024
"""A message closes at this size; one larger entry still goes, alone."""

CLOSED = ConnectionLost("the appender was closed: what was under way may have arrived")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


@dataclass(slots=True, eq=False)
class _Request:
    """One call of `append`: done when every chunk of it is confirmed."""

    done: asyncio.Future[None]
    chunks: int = 0
    seq: int = 0
    sent: bool = False
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Chunk:
    request: _Request
    entries: list[bytes] = field(default_factory=list)
    size: int = 0


class Appender:
    """Appends entries to one stream, one unconfirmed message at a time; what is asked meanwhile shares the next one.

    An entry that no message can hold goes as a message of its job, with the rest in headers (`model.unwrapped`).

    A message whose confirm was lost is sent again under its number until it is confirmed, or nobody waits for it any
    more: folds ignore repeats. Safe for many tasks at once; entries arrive in the order of the calls.
    """

    def __init__(self, link: Link, stream: str, *, clock: Clock, source: str | None = None) -> None:
        self.stream = stream
        self.source = source or uuid.uuid4().hex
        self._link = link
        self._clock = clock
        self._channel = PublishingChannel(link)
        self._seq = 0
        self._queue: deque[_Chunk] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._alone: tuple[_Request, asyncio.Timeout] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def seq(self) -> int:
        """The number of the last message begun."""
        return self._seq

    async def append(self, entries: Sequence[bytes], *, timeout: float | None = None) -> int:
        """Append JSON objects and return once the broker confirmed them all: the number of their last message.

        Raises ConfirmTimeout after `timeout` seconds when they may have arrived, BrokerUnavailable when they certainly
        did not, Refused, TooLarge (an entry that no message can hold, and neither its job), ValueError (an entry is no
        JSON object). Cancelling gives up in the same way.
        """
        if not entries:
            return self._seq
        request = _Request(asyncio.get_running_loop().create_future())
        chunks = _chunks(request, entries, self._most())
        try:
            async with asyncio.timeout(timeout) as scope:
                if self._alone is None and (self._pump is None or self._pump.done()):
                    await self._append_alone(request, chunks, scope)
                else:
                    self._queue.extend(chunks)
                    await request.done
            return request.seq
        except TimeoutError:
            if request.closed:
                raise again(CLOSED) from None
            if request.sent:
                raise ConfirmTimeout(f"no confirm from {self.stream} within {timeout:g} s") from None
            reason = self._link.blocked or self._link.last_error or "the broker did not answer"
            raise BrokerUnavailable(f"nothing was appended to {self.stream}: {reason}") from None

    async def close(self) -> None:
        """Give up what is under way (its callers get ConnectionLost) and close the channel; safe to repeat."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])
        while self._queue:
            _refuse(self._queue.popleft().request, CLOSED)
        if self._alone is not None:
            request, scope = self._alone
            if not scope.expired():
                request.closed = True
                scope.reschedule(asyncio.get_running_loop().time())
            await self._idle.wait()
        await self._channel.close()

    async def _append_alone(self, request: _Request, chunks: list[_Chunk], scope: asyncio.Timeout) -> None:
        """Nobody else has anything to append: its caller sends it, without tasks of our own; others queue meanwhile."""
        self._alone = request, scope
        self._idle.clear()
        try:
            for chunk in chunks:
                self._seq = request.seq = self._seq + 1
                await self._until_confirmed(chunk.entries, self._seq, (request,))
        finally:
            self._alone = None
            self._idle.set()
            if self._queue:
                self._pump = asyncio.create_task(self._run(), name=f"append {self.stream}")

    async def _run(self) -> None:
        while chunks := self._take():
            await self._deliver(chunks)

    def _take(self) -> list[_Chunk]:
        """The chunks of the next message: at least one that someone still waits for."""
        taken: list[_Chunk] = []
        size = 0
        most = self._most()
        while self._queue and (not taken or size + self._queue[0].size <= most):
            chunk = self._queue.popleft()
            if not chunk.request.done.done():
                taken.append(chunk)
                size += chunk.size
        return taken

    async def _deliver(self, chunks: list[_Chunk]) -> None:
        """Send one message until it is confirmed, refused, or no caller waits for it."""
        self._seq += 1
        entries = [entry for chunk in chunks for entry in chunk.entries]
        requests = [chunk.request for chunk in chunks]
        for request in requests:
            request.seq = self._seq
        sending = asyncio.create_task(self._until_confirmed(entries, self._seq, requests))

        def stop_when_abandoned(_: asyncio.Future[None]) -> None:
            if all(request.done.done() for request in requests):
                sending.cancel()

        for request in requests:
            request.done.add_done_callback(stop_when_abandoned)
        try:
            await asyncio.wait([sending])
        finally:
            for request in requests:
                request.done.remove_done_callback(stop_when_abandoned)
            sending.cancel()
            _settle(requests, sending)

    async def _until_confirmed(self, entries: list[bytes], seq: int, requests: Sequence[_Request]) -> None:
        pause = FIRST_PAUSE
        whole = Outgoing(message_body(entries, self.source, seq), "", self.stream)
        while True:
            try:
                publisher = await self._channel.open()
                message = whole if len(whole.body) <= self._link.largest_message else self._unwrapped(entries, seq)
                for request in requests:
                    request.sent = True
                return await publisher.publish(message)
            except (ConnectionLost, Nacked) as error:
                log.debug("append to %s again: %s", self.stream, error)
            except (Unroutable, NotFound):
                await self._restore_topology()
            await self._clock.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, LONGEST_PAUSE)

    def _unwrapped(self, entries: list[bytes], seq: int) -> Outgoing:
        """The message of an entry that is too large: its job alone."""
        limit = self._link.largest_message
        found = unwrapped.split(entries[0]) if len(entries) == 1 else None
        if found is None or len(found.body) > limit:
            size = sum(map(len, entries)) if found is None else len(found.body)
            raise TooLarge(f"an entry of {size} bytes for {self.stream} does not fit: the limit is {limit}")
        stamp: dict[str, Scalar] = {f"{unwrapped.PREFIX}from": self.source, f"{unwrapped.PREFIX}seq": seq}
        return Outgoing(found.body, "", self.stream, Properties(headers=found.headers | stamp))

    def _most(self) -> int:
        """Bytes at which a message closes."""
        return min(MESSAGE_BYTES, largest_entry(self._link.largest_message))

    async def _restore_topology(self) -> None:
        """Nothing took the message: the stream was deleted, or the broker has just started and it is not up yet."""
        log.info("the stream %s takes nothing now: declaring it unless it exists", self.stream)
        try:
            await topology.ensure(await self._link.connection(), self._link.settings)
        except ConnectionLost:
            return


def message_body(entries: Sequence[bytes], source: str, seq: int) -> bytes:
    """One message of JSON objects, an array when there are several; the first one gets `from` and `seq`.

    They come last in it: of members with the same name the last one counts. Raises ValueError when it is no object.
    """
    members = _object(entries[0])[1:-1].strip()
    stamp = b'"from":%s,"seq":%d' % (json.dumps(source).encode(), seq)
    stamped = b"{" + members + (b"," if members else b"") + stamp + b"}"
    if len(entries) == 1:
        return stamped
    return b"[" + b",".join((stamped, *entries[1:])) + b"]"


def _object(entry: bytes) -> bytes:
    """What is no object in an array of entries would be read as an entry that cannot be understood."""
    if entry[:1] == b"{" and entry[-1:] == b"}":
        return entry
    stripped = entry.strip()
    if not (stripped.startswith(b"{") and stripped.endswith(b"}")):
        raise ValueError(f"an entry must be a JSON object, not {stripped[:40]!r}")
    return stripped


def _chunks(request: _Request, entries: Sequence[bytes], most: int) -> list[_Chunk]:
    objects = list(map(_object, entries))
    size = sum(map(len, objects)) + len(objects)
    chunks = [_Chunk(request, objects, size)] if size <= most else _split(request, objects, most)
    request.chunks = len(chunks)
    return chunks


def _split(request: _Request, objects: Sequence[bytes], most: int) -> list[_Chunk]:
    chunks: list[_Chunk] = []
    for entry in objects:
        if not chunks or chunks[-1].size + len(entry) + 1 > most:
            chunks.append(_Chunk(request))
        chunks[-1].entries.append(entry)
        chunks[-1].size += len(entry) + 1
    return chunks


def _settle(requests: list[_Request], sending: asyncio.Task[None]) -> None:
    """Tell the callers how their message ended."""
    given_up = not sending.done() or sending.cancelled()
    error = CLOSED if given_up else sending.exception()
    for request in requests:
        request.chunks -= 1
        if error is not None:
            _refuse(request, error)
        elif request.chunks == 0 and not request.done.done():
            request.done.set_result(None)


def _refuse(request: _Request, error: BaseException) -> None:
    """An exception of one's own for each caller: a shared one would collect the tracebacks of them all."""
    if not request.done.done():
        request.done.set_exception(again(error) if isinstance(error, BrokerError) else error)
