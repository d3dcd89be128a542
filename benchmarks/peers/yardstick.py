"""The barest worker and publisher over asyncio: what the broker and Python can do at all."""

from __future__ import annotations

from benchmarks.peers.product import OURS, Product
from benchmarks.place import Place
from benchmarks.processes import Command

QUEUE = "yardstick"


def _command(place: Place, module: str, *arguments: str) -> Command:
    return Command([OURS, "-m", f"benchmarks.{module}", *arguments], place.environment())


YARDSTICK = Product(
    key="yardstick",
    title="bare yardstick",
    version=lambda: "benchmarks/yardstick_worker.py",
    how="on its event loop, 500 in hand; no retries, time limits, controls or reconnects",
    durability="as amqpjobs",
    jobs=60_000,
    enqueue=lambda place, jobs, job: _command(place, "yardstick_publisher", str(jobs), QUEUE, job),
    workers=lambda place, count: [_command(place, "yardstick_worker", QUEUE) for _ in range(count)],
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
)
