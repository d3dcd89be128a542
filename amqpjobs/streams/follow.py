"""Feeding a view from a stream, for as long as the process runs, whatever happens to connection and stream."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.streams import topology
from amqpjobs.streams.epoch import Finding, digest, judge, tail
from amqpjobs.streams.errors import BrokerError, ConnectionLost, NotFound, PreconditionFailed, Refused
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Incoming, Scalar, Start
from amqpjobs.streams.subscription import Subscription

log = logging.getLogger("amqpjobs.streams")

T = TypeVar("T")

QUIET = 0.25
"""Seconds without a delivery after which a stream of unknown length counts as read to its end."""
PATIENCE = 2.0
"""The same for a stream whose tail was seen and not reached: reading began beyond it, at a time or at `next`."""
FOLD_BYTES = 512 * 1024
"""Bytes of messages that are folded in one go, about; a query waits that long. A worker's message may tell of hundreds
of jobs: a page that had to wait for two thousand of those took ten seconds while its dashboard was catching up."""
IDLE = 0.5
"""Seconds without a delivery after which a view at the tail is told so once more, and commits what it folded last: a
kill and a tail that the broker lost would bring back what was settled long before, if that waited for more to come."""
LOOK_AGAIN = 5.0
"""Seconds between looks for a checkpoint that makes up for what a view lacks."""
LOST_PAUSE = 0.05
REFUSED_PAUSE = 5.0
"""Seconds before a stream that the user may not read is tried again: rights can be given while we run."""


class Message(NamedTuple):
    """One message of a stream: its offset and its body.

    Its headers matter where the body is no entry but the job of one (`model.unwrapped`).
    """

    offset: int
    body: bytes
    headers: Mapping[str, Scalar] = MappingProxyType({})
    reply_to: str | None = None

    @property
    def digest(self) -> bytes:
        """16 bytes that tell it from another at the same offset; a view keeps that of the last one that it folded."""
        return digest(self.body)


class View(Protocol):
    """A fold with a memory. The follower calls it from one thread at a time."""

    def position(self) -> tuple[int, bytes] | None:
        """Offset and digest of the last message folded; None when there is none."""
        ...

    def fold(self, messages: Sequence[Message]) -> None:
        """Fold messages in order and move the position, in one transaction."""
        ...

    def expect(self, messages: int) -> None:
        """About so many follow before the tail: what only serves queries may be put off until `arrive`."""
        ...

    def arrive(self) -> None:
        """The tail was reached, or cannot be now, or nothing came for a while: queries are to be quick, and what was
        folded is to be kept."""
        ...

    def renew(self) -> None:
        """The stream was deleted and made anew: begin again (setting aside what is to be kept)."""
        ...

    def trimmed(self, first: int) -> None:
        """Retention took what was between the position and the message at `first`."""
        ...


class Origin(Protocol):
    """Knows where a view begins that has nothing to resume from."""

    @property
    def lacking(self) -> bool:
        """Whether the view lacks what retention took unread, and may begin again once `covers` says so."""
        ...

    async def begin(self, connection: Connection, query: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Start:
        """Prepare the view, by way of `query`, and tell where to read from."""
        ...

    async def same(self, connection: Connection, query: Callable[[Callable[[], Any]], Awaitable[Any]]) -> bool:
        """Whether the stream is the one that the view read, where its last message alone does not tell otherwise."""
        ...

    async def covers(self, connection: Connection, query: Callable[[Callable[[], Any]], Awaitable[Any]]) -> bool:
        """Whether `begin` would know all that a view knows which read everything: if so, the view is emptied."""
        ...


class Follower(Service):
    """Reads a stream into a view: resumes at its position, proves that the stream is still the same, and folds.

    Folds and queries run in one thread of the follower's own, one after the other, so that a long fold never holds up
    the loop and a query never sees half of one.
    """

    def __init__(
        self,
        link: Link,
        view: View,
        stream: str,
        *,
        clock: Clock,
        start: Start = "first",
        batch: int = 2000,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(f"follower of {stream}")
        self.stream = stream
        self.view = view
        self.on_fold: list[Callable[[], None]] = []
        """Called on the loop after each change of the view."""
        self.behind_since: float | None = clock.steady()
        """The steady second since when there is more to read than was folded; None at the tail."""
        self._link = link
        self._clock = clock
        self._start: Start = start
        self._origin = origin
        self._batch = batch
        self._threads: ThreadPoolExecutor | None = None
        self._folded = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._complaint: str | None = None
        self._next_look = -math.inf

    @property
    def trouble(self) -> str | None:
        """Why the stream cannot be read (no rights), or None. It was logged once, and is tried again."""
        return self._complaint

    @property
    def caught_up(self) -> bool:
        """Whether the tail, as it was when reading began on this connection, was reached."""
        return self._caught_up.is_set()

    async def wait_caught_up(self, timeout: float | None = None) -> None:
        """Wait until `caught_up`; TimeoutError after so many seconds."""
        async with asyncio.timeout(timeout):
            await self._caught_up.wait()

    async def query(self, question: Callable[[], T]) -> T:
        """Run `question` in the view's thread, between folds."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self.name)
        return await asyncio.get_running_loop().run_in_executor(self._threads, question)

    async def wait(self, predicate: Callable[[], T | None], timeout: float | None = None) -> T:
        """The first value other than None of `predicate`, asked now and after each fold in the view's thread.

        Raises TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while True:
                folded = self._folded
                answer = await self.query(predicate)
                if answer is not None:
                    return answer
                await folded.wait()

    async def stop(self) -> None:
        """Stop reading; returns when no fold is under way any more, so that the view can be closed."""
        await super().stop()
        self._fall_behind()
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.get_running_loop().run_in_executor(threads, _nothing)
            threads.shutdown(wait=False)

    async def run(self) -> None:
        """Follow on one connection after the other."""
        while True:
            connection = await self._link.connection()
            try:
                await self._follow(connection)
            except NotFound as error:
                await self._declare(connection, error)
            except Refused as error:
                self._complain(f"cannot read {self.stream}: {error}")
                await self._clock.sleep(REFUSED_PAUSE)
            except ConnectionLost as error:
                log.debug("reading %s again: %s", self.stream, error)
                await self._clock.sleep(LOST_PAUSE)
            finally:
                self._fall_behind()

    async def _declare(self, connection: Connection, error: BrokerError) -> None:
        """The stream is gone: without it nobody can append either."""
        if self._complaint is None:
            log.info("%s cannot be read now (%s): declaring it unless it exists", self.stream, error)
        try:
            await topology.ensure(connection, self._link.settings)
        except Refused as refusal:
            self._complain(f"cannot declare {self.stream}: {refusal}")
            await self._clock.sleep(REFUSED_PAUSE)
        except ConnectionLost:
            return

    async def _follow(self, connection: Connection) -> None:
        position = await self.query(self.view.position)
        start: Start = await self._begin(connection) if position is None else position[0]
        subscription = await Subscription.open(connection, self.stream, start)
        try:
            if position is not None and not await self._resume(connection, position, subscription):
                return
            self._complaint = None
            await self._feed(connection, subscription)
        except ConnectionLost:
            await self.query(self.view.arrive)
            raise
        finally:
            await subscription.close()

    async def _begin(self, connection: Connection) -> Start:
        return self._start if self._origin is None else await self._origin.begin(connection, self.query)

    async def _resume(self, connection: Connection, position: tuple[int, bytes], resumed: Subscription) -> bool:
        """Bring the view in line with what became of the stream; False when reading must begin anew."""
        finding = await judge(connection, self.stream, position, resumed)
        if finding is Finding.SAME and self._origin is not None:
            finding = Finding.SAME if await self._origin.same(connection, self.query) else Finding.ANEW
        if finding is Finding.ANEW:
            log.warning("%s was made anew: its view begins again", self.stream)
            self._start = "first"
            await self.query(self.view.renew)
            self._announce()
            return False
        first = await resumed.peek(None)
        if finding is Finding.TRIMMED and first is not None and _offset(first) > position[0] + 1:
            return await self._overtaken(connection, position[0] + 1, _offset(first))
        if finding is Finding.SAME:
            resumed.take(1)
        return True

    async def _overtaken(self, connection: Connection, wanted: int, first: int) -> bool:
        """Retention took messages unread; False when a checkpoint makes up for them, and reading begins with it."""
        log.warning("%s: messages from %d to %d were trimmed unread", self.stream, wanted, first - 1)
        covered = self._origin is not None and await self._origin.covers(connection, self.query)
        if not covered:
            await self.query(lambda: self.view.trimmed(first))
        self._announce()
        return not covered

    async def _feed(self, connection: Connection, subscription: Subscription) -> None:
        goal = await tail(connection, self.stream, QUIET)
        position = await self.query(self.view.position)
        reached = -1 if position is None else position[0]
        await self._expect(goal, reached, subscription)
        folded = False
        while True:
            if goal is not None and reached >= goal:
                await self._catch_up(subscription)
            if await self._made_up(connection):
                return
            if await subscription.peek(self._patience(goal, folded)) is None:
                if self.caught_up:
                    await self.query(self.view.arrive)
                goal, folded = reached, False
                continue
            if self.caught_up and self.behind_since is None:
                self.behind_since = self._clock.steady()
            messages = subscription.take(self._batch, FOLD_BYTES)
            await self.query(lambda messages=messages: self._fold(messages))  # type: ignore[misc]
            reached, folded = _offset(messages[-1]), True
            self._announce()

    @property
    def _lacking(self) -> bool:
        return self._origin is not None and self._origin.lacking

    async def _made_up(self, connection: Connection) -> bool:
        """Whether a checkpoint that came since makes up for what retention took unread: reading begins with it.

        Without this a dashboard that was overtaken would list for ever what it happens to know.
        """
        now = self._clock.steady()
        if not self._lacking or now < self._next_look or self._origin is None:
            return False
        self._next_look = now + LOOK_AGAIN
        found = await self._origin.covers(connection, self.query)
        if found:
            log.info("%s: a checkpoint makes up for what was trimmed unread; its view begins with it", self.stream)
            self._announce()
        return found

    def _patience(self, goal: int | None, folded: bool) -> float | None:
        """Seconds to wait for the next message; None: for ever, as the tail was reached and all is kept."""
        if self.caught_up:
            return IDLE if folded else LOOK_AGAIN if self._lacking else None
        # no goal: nothing came within QUIET to either of two readers, and that was the wait
        return 0.0 if goal is None else PATIENCE

    def _fold(self, messages: Sequence[Incoming]) -> None:
        self.view.fold([Message(_offset(m), m.body, m.properties.headers, m.properties.reply_to) for m in messages])

    async def _expect(self, goal: int | None, reached: int, subscription: Subscription) -> None:
        """Retention may have taken what lies between: it counts from the first message that came."""
        if goal is None or goal <= reached:
            return
        first = await subscription.peek(QUIET)
        if first is not None:
            await self.query(lambda: self.view.expect(goal - max(reached, _offset(first) - 1)))

    async def _catch_up(self, subscription: Subscription) -> None:
        if not self.caught_up:
            await self.query(self.view.arrive)
        self._caught_up.set()
        if not subscription.backlog:
            self.behind_since = None

    def _fall_behind(self) -> None:
        self._caught_up.clear()
        if self.behind_since is None:
            self.behind_since = self._clock.steady()

    def _announce(self) -> None:
        folded, self._folded = self._folded, asyncio.Event()
        folded.set()
        for callback in list(self.on_fold):
            try:
                callback()
            except Exception:
                log.exception("a callback after a fold of %s raised", self.stream)

    def _complain(self, complaint: str) -> None:
        """Once per outage, not once per attempt."""
        if complaint != self._complaint:
            log.error("%s", complaint)
        self._complaint = complaint


def _offset(message: Incoming) -> int:
    """A queue under the stream's name would be taken for an endless stream of offset 0."""
    if message.offset is None:
        raise PreconditionFailed("what is read is no stream: its messages have no offset")
    return message.offset


def _nothing() -> None:
    """What the view's thread does last: whoever waits for it knows that the fold before it has ended."""
