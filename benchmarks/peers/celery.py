"""Celery over RabbitMQ, with threads and with processes."""

from __future__ import annotations

from benchmarks.peers.product import PYTHON, UNCONFIRMED, Product, no_python_peers, python_peer, python_version
from benchmarks.place import Place
from benchmarks.processes import Command

QUEUE = "celery"


def _worker(place: Place, number: int, *pool: str) -> Command:
    quiet = ["--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    program = [PYTHON, "-m", "celery", "-A", "benchmarks.apps.celery_app", "worker", f"--hostname=w{number}@bench"]
    return Command([*program, *pool, *quiet], {**place.environment(), "C_FORCE_ROOT": "1"})


THREADS = Product(
    key="celery",
    title="Celery, threads",
    version=python_version("celery"),
    how="10 threads a process",
    durability=UNCONFIRMED,
    jobs=8_000,
    enqueue=python_peer("benchmarks.apps.celery_app"),
    workers=lambda place, count: [_worker(place, each, "--pool=threads", "--concurrency=10") for each in range(count)],
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
    missing=no_python_peers,
)

PREFORK = Product(
    key="celery-prefork",
    title="Celery, prefork",
    version=python_version("celery"),
    how="as many child processes as worker processes elsewhere, under one parent",
    durability=UNCONFIRMED,
    jobs=5_000,
    enqueue=python_peer("benchmarks.apps.celery_app"),
    workers=lambda place, count: [_worker(place, 0, "--pool=prefork", f"--concurrency={count}")],
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
    missing=no_python_peers,
)
