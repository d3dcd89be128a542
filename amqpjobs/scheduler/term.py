"""Holding a term on a stream: winning it, and what its holder asks and appends while it is its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from amqpjobs.clock import Clock
from amqpjobs.model import control, text
from amqpjobs.model.pending import Claim
from amqpjobs.service import first_to_end
from amqpjobs.streams.append import Appender
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.view_file import ViewFile

log = logging.getLogger("amqpjobs.scheduler")
T = TypeVar("T")

LONGEST_WAIT = 1.0
"""Seconds between looks at the wall clock: one set forward must not leave due jobs lying until a steady timer ends."""
FOLD_TIMEOUT = 10.0
"""Seconds in which an append of ours must come back through our own fold, once that fold is at the tail: milliseconds
as a rule. One that does not come went down with a stream that was deleted before anything of it was read."""


class Deposed(Exception):
    """Another term is current: stop at once."""


class TermHolder:
    """One try at leading one stream, whose entries go through `appender`: a term belongs to one `from`."""

    def __init__(self, view: ViewFile, follower: Follower, appender: Appender, clock: Clock, *, identity: str) -> None:
        self.epoch = ""
        self._led, self._follower, self._appender = view, follower, appender
        self._clock, self._identity = clock, identity
        self._renewals = view.renewals
        self._term = Claim(0, appender.source)
        self._written = 0

    @property
    def n(self) -> int:
        """The number of our term."""
        return self._term.n

    async def mine(self, question: Callable[[], T]) -> T:
        """Ask the view, in the same breath as whether the term is still ours. Raises Deposed."""
        (_, term), answer = await self._follower.query(lambda: (self._led.led(), question()))
        if term != self._term:
            raise Deposed(f"{self._led.stream}: term {term} took over from {self._term}")
        return answer

    async def append(self, entries: Sequence[dict[str, Any] | bytes]) -> None:
        """Append and wait until our own fold has it. Raises Deposed, TimeoutError, BrokerError."""
        await self._folded(await self._write(entries))

    async def _win_term(self) -> None:
        """Rules 7 and 8: a term is ours once it is current in our own fold. Its number is the time in ms, or one more
        than the last: even a reader that lost the log's head, and with it the last term, picks a greater one."""
        epoch, last = await self._follower.query(self._led.led)
        assert epoch is not None, "an epoch was folded"
        self.epoch = epoch
        while True:
            n = max(int(self._clock.wall() * 1000), last.n + 1 if last else 1)
            await self.append([control.write_term(epoch, n, by=self._identity, at=self._clock.wall())])
            self._term = Claim(n, self._appender.source)
            now, last = await self._follower.query(self._led.led)
            if last == self._term:
                log.info("leading %s in term %d", self._led.stream, n)
                return
            if last is None or now != epoch:
                raise Deposed(f"{self._led.stream} was made anew")

    async def _write(self, entries: Sequence[dict[str, Any] | bytes]) -> int:
        raw = [entry if isinstance(entry, bytes) else text.dump(entry) for entry in entries]
        seq = await self._appender.append(raw, timeout=FOLD_TIMEOUT)
        self._written = max(self._written, seq)
        return seq

    async def _folded(self, seq: int) -> None:
        """Wait until our own fold has our messages up to that number."""
        source = self._appender.source

        def folded() -> bool | None:
            if self._led.renewals != self._renewals:  # it went down with the stream: it would be waited for in vain
                raise Deposed(f"{self._led.stream} was made anew")
            return self._led.last_seq(source) >= seq or None

        await self._follower.wait(folded, timeout=FOLD_TIMEOUT)

    async def _rest(self, until: float, woken: Callable[[], Any]) -> None:
        """Until that wall-clock time, or what `woken` waits for."""
        wait = max(0.0, until - self._clock.wall())
        await first_to_end(self._clock.sleep(min(LONGEST_WAIT, wait)), woken())
