"""Connections of code that is not asynchronous outlive what that code does between two calls."""

from __future__ import annotations

import threading

from amqpjobs.model import names
from amqpjobs.pipeline.planner import Planner
from amqpjobs.pipeline.reading import messages
from amqpjobs.settings import Settings
from amqpjobs.streams.ranges import Position
from tests.pipeline import streams
from tests.pipeline.streams import append

HEARTBEAT = 2
STILL = 8.0
"""Seconds: the broker closes a connection that was silent for twice the heartbeat."""


def test_a_range_may_take_longer_than_heartbeats_may_stay_away(settings: Settings) -> None:
    """A planner that asked, and a reader that gave something, are used again after the broker's patience."""
    settings = settings.model_copy(update={"heartbeat": HEARTBEAT})
    streams.declare(settings)
    append(settings, names.METRICS, [b"%d" % number for number in range(30_000)])
    planner = Planner(settings)
    try:
        [wanted] = planner.following({names.METRICS: None}, 10**9).values()
        reading = messages(settings, wanted, skip=False)
        count = len(next(reading))
        threading.Event().wait(STILL)  # as Spark does with what it got
        assert wanted.digest is not None
        assert planner.same(names.METRICS, Position(wanted.end, wanted.digest))
        assert count + sum(map(len, reading)) == 30_000
    finally:
        planner.close()
