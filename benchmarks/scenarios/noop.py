"""No-op jobs a second: every product with two worker processes, ours and the yardstick with one and four too."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from benchmarks import peers
from benchmarks.peers.product import Product
from benchmarks.place import Place
from benchmarks.scenarios.runs import Runs, no_op, prove
from benchmarks.scenarios.session import Session, installed

PROCESSES = 2
FOR_THE_OTHERS = 0.4
"""The share of all the time in which no further round is begun."""
GROWTH = (1, 4)
GROWING = ("ours-lean", "yardstick")


@dataclass(slots=True)
class _Entry:
    product: Product
    place: Place
    version: str
    by_workers: dict[int, Runs] = field(default_factory=dict)


def measure(session: Session) -> dict[str, Any]:
    """Runs of the products are interleaved, so that a noisy minute meets all of them."""
    with contextlib.ExitStack() as stack:
        entries = []
        for product in installed(peers.ALL, session):
            with session.survives(f"noop {product.key}"):
                entry = _Entry(product, stack.enter_context(session.place(product.key)), product.version())
                prove(product, entry.place)
                entries.append(entry)
        for number in range(session.runs):
            if number and session.left < session.minutes * 60 * FOR_THE_OTHERS:
                session.say(f"only {number} runs each: the time is needed for the other figures")
                break
            for entry in entries:
                for workers in _workers(entry.product):
                    _run(session, entry, workers, number)
        return {entry.product.key: _described(entry) for entry in entries}


def _workers(product: Product) -> list[int]:
    return sorted([PROCESSES, *(GROWTH if product.key in GROWING else ())])


def _run(session: Session, entry: _Entry, workers: int, number: int) -> None:
    product = entry.product
    what = f"noop {product.key} {workers}"
    if what in session.failures:
        return
    runs = entry.by_workers.setdefault(workers, Runs())
    with session.survives(what):
        no_op(product, entry.place, workers, session.jobs(product.jobs), runs)
        session.say(f"{product.title}, {workers} processes, run {number + 1}: {runs.rates[-1]:.0f} jobs/s")


def _described(entry: _Entry) -> dict[str, Any]:
    product = entry.product
    words = {"title": product.title, "version": entry.version, "how": product.how}
    figures = {str(workers): runs.as_json() for workers, runs in entry.by_workers.items()}
    return words | {"durability": product.durability, "workers": figures}
