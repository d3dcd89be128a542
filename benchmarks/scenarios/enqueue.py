"""Confirmed enqueueing by one process: all at once, and one by one. (The peers' rates come from the no-op runs.)"""

from __future__ import annotations

from typing import Any

from benchmarks.peers import ours, yardstick
from benchmarks.place import Place
from benchmarks.processes import answer
from benchmarks.scenarios.session import Session
from benchmarks.statistics import figure

MANY = {"lean": 40_000, "quorum": 40_000, "aiormq": 8_000}
ONE_BY_ONE = 2_000


def measure(session: Session) -> dict[str, Any]:
    """Nobody works meanwhile."""
    found: dict[str, Any] = {}
    for profile in MANY:
        with session.survives(f"enqueue {profile}"), session.place(f"enqueue-{profile}") as place:
            found[profile] = _profile(session, place, profile)
    with session.survives("enqueue yardstick"), session.place("enqueue-yardstick") as place:
        rates = []
        for _ in range(session.runs):
            rates.append(
                _rate(answer(yardstick.YARDSTICK.enqueue(place, session.jobs(MANY["lean"]), "noop"), place.log))
            )
            place.depths.purge(yardstick.QUEUE)
        found["yardstick"] = {"many": figure(rates).as_json()}
    return found


def _profile(session: Session, place: Place, profile: str) -> dict[str, Any]:
    many, p50, p99 = [], [], []
    for number in range(session.runs + 1):
        jobs = str(session.jobs(MANY[profile] if number else 1_000))
        told = answer(ours.produce(place, profile, "many", jobs, "noop"), place.log)
        one = answer(ours.produce(place, profile, "single", str(session.jobs(ONE_BY_ONE)), "noop"), place.log)
        place.depths.purge(ours.QUEUE)
        if number:  # the first warms up: it also makes the queue
            many.append(_rate(told))
            p50.append(one["p50_ms"])
            p99.append(one["p99_ms"])
            session.say(f"enqueue, {profile}: {many[-1]:.0f}/s together; alone p50 {p50[-1]:.2f} ms")
    named = {"many": many, "single_p50_ms": p50, "single_p99_ms": p99}
    return {name: figure(values).as_json() for name, values in named.items()}


def _rate(told: dict[str, Any]) -> float:
    return float(told["jobs"] / told["seconds"])
