"""No-op jobs, two worker processes, on several brokers (BENCH_URLS, with spaces between)."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.broker import known
from benchmarks.peers import ours
from benchmarks.place import place
from benchmarks.scenarios.runs import Runs, no_op, prove
from benchmarks.scenarios.session import Session

RUNS = 2


def measure(session: Session) -> dict[str, Any]:
    """By the broker's version. Without BENCH_URLS there is nothing to compare."""
    found: dict[str, Any] = {}
    for number, url in enumerate(os.environ.get("BENCH_URLS", "").split()):
        with session.survives(f"brokers {number + 1}"):
            broker = known(url)
            version = broker.version
            with place(broker, session.work, f"broker-{number}") as there:
                prove(ours.LEAN, there)
                runs = Runs()
                for _ in range(min(RUNS, session.runs)):
                    no_op(ours.LEAN, there, 2, session.jobs(ours.LEAN.jobs), runs)
            found[version] = runs.as_json()
            session.say(f"{version}: {runs.rates[-1]:.0f} jobs/s, enqueued {runs.enqueued[-1]:.0f}/s")
    return found
