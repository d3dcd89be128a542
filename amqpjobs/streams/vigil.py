"""Ends a publishing channel that the broker has forgotten.

A RabbitMQ 3.10 that had been killed and took connections again before its streams had their leaders wrote what was
published to one, and never confirmed it (seen once, in `test_a_broker_that_restarts_is_read_on`). Connection and
heartbeats live on then, so nothing else ends the wait: whoever gives no time limit waits for ever, and whoever gives
one fails with each later message on that channel as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from amqpjobs.streams.errors import ConnectionLost

CHECK_SECONDS = 1.0
SILENT_CHECKS = 10
"""So many seconds: less would send much again at a quorum queue that elects a leader, more would be a longer gap than
the 15 s in which everything is to run again after a restart. Checks are counted and not time: a loop that was held up
finds them all due at once, and the confirms behind them."""


class Vigil:
    """Watches one channel from a message's departure until nothing is under way any more.

    `under_way`, `settled`: how many messages wait for their confirm, and how many ever got an answer. `held`: whether
    the broker takes nothing now, and says so (an alarm, a socket that is full). `end`: called with the reason, once
    nothing at all was settled in SILENT_CHECKS checks.
    """

    def __init__(
        self,
        under_way: Callable[[], int],
        settled: Callable[[], int],
        held: Callable[[], bool],
        end: Callable[[ConnectionLost], None],
    ) -> None:
        self._under_way = under_way
        self._settled = settled
        self._held = held
        self._end = end
        self._timer: asyncio.TimerHandle | None = None
        self._seen = 0
        self._silent = 0

    def watch(self) -> None:
        """Something leaves; safe to repeat, and cheap."""
        if self._timer is None:
            self._seen, self._silent = self._settled(), 0
            self._arm()

    def stop(self) -> None:
        """The channel is gone; safe to repeat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if not self._under_way():
            self._timer = None
            return
        settled = self._settled()
        self._silent = 0 if settled != self._seen or self._held() else self._silent + 1
        self._seen = settled
        if self._silent < SILENT_CHECKS:
            self._arm()
            return
        self._timer = None
        seconds = CHECK_SECONDS * SILENT_CHECKS
        self._end(ConnectionLost(f"the broker confirmed nothing for {seconds:g} s: the channel was given up"))
