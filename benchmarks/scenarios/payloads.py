"""No-op jobs with arguments of 100 bytes to 100 KB: enqueued by one process, run by two."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import ours
from benchmarks.processes import answer
from benchmarks.scenarios.runs import drained
from benchmarks.scenarios.session import Session
from benchmarks.statistics import figure

SIZES = {100: 30_000, 1_000: 30_000, 10_000: 15_000, 100_000: 3_000}
RUNS = 2
PROFILE = "lean"


def measure(session: Session) -> dict[str, Any]:
    """By size in bytes."""
    found: dict[str, Any] = {}
    for size, count in SIZES.items():
        with session.survives(f"payloads {size}"), session.place(f"payload-{size}") as place:
            rates, enqueued = [], []
            for _ in range(min(RUNS, session.runs)):
                jobs = session.jobs(count)
                told = answer(ours.produce(place, PROFILE, "many", str(jobs), "noop", str(size)), place.log)
                enqueued.append(told["jobs"] / told["seconds"])
                workers = [ours.worker(place, PROFILE)] * 2
                rates.append(drained(place, workers, place.queue(ours.QUEUE))[0])
                place.depths.purge(ours.QUEUE)
                ours.check(place)
            found[str(size)] = {"rate": figure(rates).as_json(), "enqueue_rate": figure(enqueued).as_json()}
            session.say(f"payloads of {size} bytes: {rates[-1]:.0f} jobs/s, enqueued {enqueued[-1]:.0f}/s")
    return found
