"""taskiq over RabbitMQ, by taskiq-aio-pika."""

from __future__ import annotations

from benchmarks.peers.product import PYTHON, Product, no_python_peers, python_peer, python_version
from benchmarks.place import Place
from benchmarks.processes import Command

QUEUE = "taskiq"


def _workers(place: Place, count: int) -> list[Command]:
    program = [PYTHON, "-m", "taskiq", "worker", "benchmarks.apps.taskiq_app:broker", "--log-level", "WARNING"]
    options = ["--workers", str(count), "--max-async-tasks", "100", "--ack-type", "when_executed"]
    return [Command([*program, *options], place.environment())]


TASKIQ = Product(
    key="taskiq",
    title="taskiq",
    version=python_version("taskiq", "taskiq-aio-pika"),
    how="100 tasks a process on its event loop",
    durability="persistent message, confirmed to the sender; acknowledged after the job",
    jobs=6_000,
    enqueue=python_peer("benchmarks.apps.taskiq_app"),
    workers=_workers,
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
    missing=no_python_peers,
)
