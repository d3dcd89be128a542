"""What a broker says that has just begun, and when somebody is to hear of it."""

from __future__ import annotations

from typing import Any

from amqpjobs.clock import SystemClock
from amqpjobs.streams.errors import NotFound, NotReady
from amqpjobs.worker.declarations import STARTING, Declarations


class SteppedClock(SystemClock):
    now = 0.0

    def steady(self) -> float:
        return self.now


def test_that_a_queue_is_not_up_yet_counts_only_when_it_lasts() -> None:
    clock = SteppedClock()
    link: Any = None
    declared = Declarations(link, clock)
    first: Any = object()
    second: Any = object()
    error = NotReady("home node of durable queue is down or inaccessible")
    assert declared.starting(error, first)
    clock.now += STARTING - 1
    assert declared.starting(error, first)
    assert not declared.starting(NotFound("no queue"), first)
    clock.now += 2
    assert not declared.starting(error, first)
    assert declared.starting(error, second), "a connection made anew: the broker may have begun again"
