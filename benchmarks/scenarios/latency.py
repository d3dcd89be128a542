"""From `enqueued_at` to `started_at` at a steady 200 jobs a second, on one machine and so by one clock."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers import ours
from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, answer, last_lines, running
from benchmarks.scenarios.session import Session
from benchmarks.statistics import figure, percentile

RATE = 200
SECONDS = {"lean": 10.0, "quorum": 10.0, "aiormq": 5.0}
PATIENCE = 20.0


def measure(session: Session) -> dict[str, Any]:
    """One worker process, one producer, both on our client."""
    found: dict[str, Any] = {}
    for profile, seconds in SECONDS.items():
        with session.survives(f"latency {profile}"), session.place(f"latency-{profile}") as place:
            p50, p99 = [], []
            with running([ours.worker(place, profile)], place.log):
                _waits(place, profile, 1.0)  # the warm-up
                for _ in range(session.runs):
                    waits = _waits(place, profile, max(1.0, seconds * session.scale))
                    p50.append(percentile(waits, 0.5))
                    p99.append(percentile(waits, 0.99))
                    session.say(f"latency, {profile}: p50 {p50[-1]:.2f} ms, p99 {p99[-1]:.2f} ms")
            found[profile] = {"p50_ms": figure(p50).as_json(), "p99_ms": figure(p99).as_json()}
    return found


def _waits(place: Place, profile: str, seconds: float) -> list[float]:
    """What each job waited, in ms."""
    place.ticks.write_text("")
    told = answer(ours.produce(place, profile, "paced", str(RATE), str(seconds), "waited"), place.log)
    deadline = time.monotonic() + PATIENCE
    expected = told["jobs"] + 1  # one before, that makes the connection
    while len(lines := place.ticks.read_text().split()) < expected:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{len(lines)} of {expected} jobs were run: {last_lines(place.log)}")
        time.sleep(0.1)
    ours.check(place)
    return [float(line) for line in lines[1:]]
