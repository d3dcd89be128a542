"""SAQ over Redis."""

from __future__ import annotations

from benchmarks.peers.product import (
    NO_DISK,
    PYTHON,
    Product,
    flush_redis,
    no_python_peers,
    python_peer,
    python_version,
)
from benchmarks.place import Place
from benchmarks.processes import Command


def _workers(place: Place, count: int) -> list[Command]:
    program = [PYTHON, "-m", "saq", "benchmarks.apps.saq_app.settings", "--quiet"]
    return [Command(program, {**place.environment(), "BENCH_CONCURRENCY": "100"}) for _ in range(count)]


SAQ = Product(
    key="saq",
    title="SAQ",
    version=python_version("saq"),
    how="100 tasks a process on its event loop",
    durability=f"{NO_DISK}; results not kept",
    jobs=6_000,
    enqueue=python_peer("benchmarks.apps.saq_app"),
    workers=_workers,
    left=lambda place: place.lists("saq:default:queued"),
    empty=flush_redis,
    missing=no_python_peers,
)
