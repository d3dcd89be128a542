"""How long a worker takes from its start to its first job."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers import ours
from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, answer, last_lines, running
from benchmarks.scenarios.session import Session
from benchmarks.statistics import figure

STARTS = 5
LONGEST = 20.0


def measure(session: Session) -> dict[str, Any]:
    """The job waits in its queue before the process is started; the topology and a leader are there, as on any site.

    The first start is dropped.
    """
    found: dict[str, Any] = {}
    for profile in ("lean", "aiormq"):
        with session.survives(f"start {profile}"), session.place(f"start-{profile}") as place:
            with running([ours.scheduler(place, profile)], place.log):
                seconds = [_started(place, profile) for _ in range(STARTS + 1)][1:]
            found[profile] = {"seconds": figure(seconds).as_json()}
            session.say(f"start, {profile}: {found[profile]['seconds']['median']:.2f} s to the first job")
    return found


def _started(place: Place, profile: str) -> float:
    """By the wall clock of one machine."""
    place.ticks.write_text("")
    answer(ours.produce(place, profile, "many", "1", "begun"), place.log)
    begin = time.time()
    with running([ours.worker(place, profile)], place.log):
        while not (line := place.ticks.read_text()).endswith("\n"):
            if time.time() - begin > LONGEST:
                raise BenchmarkError(f"the worker began nothing within {LONGEST:.0f} s: {last_lines(place.log)}")
            time.sleep(0.02)
    return float(line.split()[0]) - begin
