"""Jobs that wait: 10 ms on the event loop, 100 at a time; 1 ms in ten threads. Against the same waits without us."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from benchmarks import bare
from benchmarks.peers import ours
from benchmarks.processes import Command, answer
from benchmarks.scenarios.runs import drained
from benchmarks.scenarios.session import Session
from benchmarks.statistics import figure


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of waiting. `ideal`: jobs a second if nothing but the waiting took time."""

    key: str
    job: str
    at_a_time: int
    ideal: float
    jobs: int


TASKS = Kind("tasks", "sleep_10_ms", bare.TASKS, bare.TASKS / bare.TASK_SECONDS, 30_000)
THREADS = Kind("threads", "sleep_1_ms", bare.THREADS, bare.THREADS / bare.THREAD_SECONDS, 15_000)
PROFILE = "lean"


def asynchronous(session: Session) -> dict[str, Any]:
    """10 ms jobs on the event loop."""
    return _measured(session, TASKS)


def threaded(session: Session) -> dict[str, Any]:
    """1 ms jobs in threads."""
    return _measured(session, THREADS)


def _measured(session: Session, kind: Kind) -> dict[str, Any]:
    rates, bare_rates = [], []
    with session.place(f"waiting-{kind.key}") as place:
        for _ in range(session.runs):
            told = answer(Command([sys.executable, "-m", "benchmarks.bare", kind.key]), place.log)
            bare_rates.append(told["jobs"] / told["seconds"])
            jobs = session.jobs(kind.jobs)
            answer(ours.produce(place, PROFILE, "many", str(jobs), kind.job), place.log)
            worker = ours.worker(place, PROFILE, kind.at_a_time)
            rates.append(drained(place, [worker], place.queue(ours.QUEUE))[0])
            place.depths.purge(ours.QUEUE)
            ours.check(place)
            session.say(f"{kind.job}: {rates[-1]:.0f} jobs/s; without us {bare_rates[-1]:.0f}")
    return {"rate": figure(rates).as_json(), "bare": figure(bare_rates).as_json(), "ideal": kind.ideal}
