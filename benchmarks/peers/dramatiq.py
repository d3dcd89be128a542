"""Dramatiq over RabbitMQ."""

from __future__ import annotations

from benchmarks.peers.product import PYTHON, UNCONFIRMED, Product, no_python_peers, python_peer, python_version
from benchmarks.place import Place
from benchmarks.processes import Command

QUEUE = "default"


def _workers(place: Place, count: int) -> list[Command]:
    program = [PYTHON, "-m", "dramatiq", "benchmarks.apps.dramatiq_app"]
    return [Command([*program, "--processes", str(count), "--threads", "10"], place.environment())]


DRAMATIQ = Product(
    key="dramatiq",
    title="Dramatiq",
    version=python_version("dramatiq"),
    how="10 threads a process",
    durability=UNCONFIRMED,
    jobs=8_000,
    enqueue=python_peer("benchmarks.apps.dramatiq_app"),
    workers=_workers,
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
    missing=no_python_peers,
)
