"""No-op jobs, two worker processes, on several brokers (BENCH_URLS, with spaces between)."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.broker import Broker, known
from benchmarks.peers import ours
from benchmarks.peers.product import Product
from benchmarks.place import place
from benchmarks.scenarios.runs import Runs, no_op, prove
from benchmarks.scenarios.session import Session

RUNS = 2
KINDS = {"classic": ours.LEAN, "quorum": ours.QUORUM}


def measure(session: Session) -> dict[str, Any]:
    """By the broker's version and the type of its queues. Without BENCH_URLS there is nothing to compare."""
    found: dict[str, Any] = {}
    for number, url in enumerate(os.environ.get("BENCH_URLS", "").split()):
        with session.survives(f"brokers {number + 1}"):
            broker = known(url)
            figures = found.setdefault(broker.version, {})
            for kind, product in KINDS.items():
                figures[kind] = _measured(session, broker, product, f"broker-{number}-{kind}")
    return found


def _measured(session: Session, broker: Broker, product: Product, name: str) -> dict[str, Any]:
    with place(broker, session.work, name) as there:
        prove(product, there)
        runs = Runs()
        for _ in range(min(RUNS, session.runs)):
            no_op(product, there, 2, session.jobs(product.jobs), runs)
    session.say(f"{broker.version}, {name}: {runs.rates[-1]:.0f} jobs/s, enqueued {runs.enqueued[-1]:.0f}/s")
    return runs.as_json()
