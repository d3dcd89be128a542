"""How fast a stream of single entries becomes a view: `python -m benchmarks.delayed_fold [ENTRIES]` (100,000).

Issue 5 asks for 10,000 a second: reading over AMQP, folding, SQLite, indexes at the end, all in one process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.views import DelayedView
from benchmarks.delayed_site import FAR, Site, bare_insert_rate, publish, scheduled, site, until

RUNS = 3


async def _once(place: Site, folder: Path, count: int, *, lists: bool) -> tuple[float, float]:
    """Wall and CPU seconds from nothing to a view that has caught up."""
    view = DelayedView(folder, names.SCHEDULED, lists=lists)
    follower = Follower(place.link, view, names.SCHEDULED, clock=SystemClock())
    wall, cpu = time.perf_counter(), time.process_time()
    await follower.start()
    await follower.wait_caught_up()

    async def all_there() -> bool:
        return await follower.query(view.count) >= count

    await until(all_there, timeout=600)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    await follower.stop()
    view.close()
    return spent


async def main(count: int) -> None:
    async with site() as place:
        far = time.time() + FAR
        bodies = (json.dumps(scheduled(n, far + n * 7919 % count)).encode() for n in range(count))
        rate = await publish(place.connection, bodies, "", names.SCHEDULED)
        print(f"{count:,} single entries in the stream, published at {rate:,.0f}/s")
        for _ in range(RUNS):
            print(f"yardstick, bare SQLite inserts: {bare_insert_rate(place.work):,.0f}/s")
            for lists in (False, True):
                folder = Path(tempfile.mkdtemp(dir=place.work))
                wall, cpu = await _once(place, folder, count, lists=lists)
                what = "dashboard's view (indexes for lists)" if lists else "scheduler's view"
                print(f"{what}: {count / wall:,.0f} entries/s; {cpu / count * 1e6:.1f} us of CPU each", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
