"""A worker's memory and the channels that are open, over a million jobs."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.peers import ours
from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, answer, last_lines, resident_bytes, running
from benchmarks.scenarios.session import Session

JOBS = 1_000_000
STEPS = 10
PROFILE = "lean"
STATISTICS = 6.0
"""Seconds: the broker tells its management API every five."""
LONGEST = 420.0
"""Seconds after which it is left at as many jobs as were done, as the report shows; less where time is short."""


def measure(session: Session) -> dict[str, Any]:
    """A producer and one worker at the same time; after each tenth the worker's resident memory."""
    step = session.jobs(int(os.environ.get("BENCH_MEMORY_JOBS", JOBS))) // STEPS
    begin, longest = time.monotonic(), max(60.0, min(LONGEST, session.left - 20.0))
    points: list[dict[str, Any]] = []
    with session.place("memory") as place, running([ours.worker(place, PROFILE)], place.log) as (worker,):
        channels: list[int] = []
        for number in range(STEPS):
            answer(ours.produce(place, PROFILE, "many", str(step), "noop"), place.log)
            _drained(place)
            points.append({"jobs": (number + 1) * step, "rss_mb": round(resident_bytes(worker) / 1e6, 1)})
            if not channels:  # from here on all that a worker opens is open
                channels.append(_channels(place))
            session.say(f"memory: {points[-1]['rss_mb']} MB after {points[-1]['jobs']} jobs")
            if time.monotonic() - begin > longest:
                break
        ours.check(place)
        channels.append(_channels(place))
    return {"points": points, "channels": channels}


def _channels(place: Place) -> int:
    """Once the management API has heard of what the last producer opened and closed."""
    time.sleep(STATISTICS)
    return place.broker.channels(place.vhost)


def _drained(place: Place) -> None:
    """Wait until all is done."""
    deadline = time.monotonic() + 120
    while place.depths.ready(ours.QUEUE):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the queue does not empty: {last_lines(place.log)}")
        time.sleep(0.1)
