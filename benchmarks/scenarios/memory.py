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
DRIVER = "lean"
LONGEST = 420.0
"""Seconds after which it is left at as many jobs as were done, as the report shows; less where time is short."""


def measure(session: Session) -> dict[str, Any]:
    """A producer and one worker at the same time; after each tenth the worker's resident memory."""
    step = session.jobs(int(os.environ.get("BENCH_MEMORY_JOBS", JOBS))) // STEPS
    begin, longest = time.monotonic(), max(60.0, min(LONGEST, session.left - 20.0))
    points: list[dict[str, Any]] = []
    with session.place("memory") as place, running([ours.worker(place, DRIVER)], place.log) as (worker,):
        answer(ours.produce(place, DRIVER, "many", "1000", "noop"), place.log)
        _drained(place)
        channels = [place.broker.channels(place.vhost)]
        for number in range(STEPS):
            answer(ours.produce(place, DRIVER, "many", str(step), "noop"), place.log)
            _drained(place)
            points.append({"jobs": (number + 1) * step, "rss_mb": round(resident_bytes(worker) / 1e6, 1)})
            session.say(f"memory: {points[-1]['rss_mb']} MB after {points[-1]['jobs']} jobs")
            if time.monotonic() - begin > longest:
                break
        ours.check(place)
        channels.append(place.broker.channels(place.vhost))
    return {"points": points, "channels": channels}


def _drained(place: Place) -> None:
    """Wait until all is done. The producer's channels are gone by then from the broker's list, too."""
    deadline = time.monotonic() + 120
    while place.depths.ready(ours.QUEUE):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the queue does not empty: {last_lines(place.log)}")
        time.sleep(0.1)
    time.sleep(1.0)
