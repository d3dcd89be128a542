"""A scheduler with a million pending: `python -m benchmarks.delayed_million [PENDING [SINGLES [SETTLED]]]`.

1,000,000, 0 and 0 unless told otherwise.

Its memory, from its start to the first release with its disk lost and with its view kept, and what it takes while it
idles. The stream is filled with arrays of 200 entries a message; the last SINGLES are messages of their own, as most
clients send them. One job that is due waits at the end of the log: the first release is that one. SETTLED jobs, one a
message, were released before all this by another scheduler: what is long settled is not to be read by who has lost its
disk, and the line that the scheduler logs tells where it began.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from amqpjobs.model import names
from amqpjobs.scheduler.cleaner import NEWS
from amqpjobs.streams.checkpoints import published
from benchmarks.delayed_site import (
    FAR,
    Site,
    arrays,
    bare_insert_rate,
    bare_publish_rate,
    publish,
    scheduled,
    site,
    until,
    waiting,
)
from benchmarks.processes import cpu_seconds, end, last_lines, resident_bytes

ARRAY = 200
IDLE = 60.0
"""Seconds over which an idle scheduler is watched."""
MIB = 2**20


async def _fill(place: Site, pending: int, singles: int) -> None:
    far = time.time() + FAR
    first = pending - singles
    entries = (scheduled(n, far + n * 7919 % pending) for n in range(first))
    await publish(place.connection, arrays(entries, ARRAY), "", names.SCHEDULED)
    rest = (json.dumps(scheduled(n, far + n)).encode() for n in range(first, pending))
    await publish(place.connection, rest, "", names.SCHEDULED)


async def _settle(place: Site, count: int) -> None:
    """Let so many jobs come and go."""
    due = time.time()
    await publish(place.connection, (json.dumps(scheduled(n, due)).encode() for n in range(count)), "", names.SCHEDULED)
    process = place.scheduler("earlier").started(place.work / "earlier.log")

    async def all_out() -> bool:
        return sum([await waiting(place.connection, queue) for queue in ("mail", "default")]) >= count

    async def told() -> bool:
        known = await published(place.connection, names.SCHEDULED, "first")
        return bool(known) and count - max(each.low for each in known) < NEWS

    try:
        await until(all_out, timeout=60 + count / 200, pause=0.2)
        await until(told, timeout=120, pause=0.5)
    finally:
        end([process])


def _began(place: Site) -> str:
    """What a scheduler said of where it began to read."""
    lines = (place.work / "scheduler.log").read_text().splitlines()
    found = [line for line in lines if f"{names.SCHEDULED} is read from" in line]
    return found[-1].partition(": ")[2] if found else "read from its beginning"


async def _released(place: Site, before: int, process: subprocess.Popen[bytes]) -> int:
    """Wait for one more job in the queue; the most memory that the scheduler had meanwhile."""
    most = 0

    async def one_more() -> bool:
        nonlocal most
        most = max(most, resident_bytes(process))
        return await waiting(place.connection) > before

    await until(one_more, timeout=900, pause=0.05)
    return most


async def _start(place: Site, number: int, state: str, what: str) -> subprocess.Popen[bytes]:
    """Start a scheduler with one due job at the end of the log, and tell how long that took to leave."""
    due = scheduled(10_000_000 + 2 * number + 1, time.time() - 1.0)  # odd ones go to the queue `default`
    await publish(place.connection, [json.dumps(due).encode()], "", names.SCHEDULED)
    before = await waiting(place.connection)
    started = time.perf_counter()
    process = place.scheduler(state).started(place.work / "scheduler.log")
    try:
        most = await _released(place, before, process)
    except BaseException:
        print(last_lines(place.work / "scheduler.log"))
        end([process])
        raise
    took, cpu = time.perf_counter() - started, cpu_seconds([process])
    print(
        f"{what}: first release after {took:.1f} s ({cpu:.1f} s of CPU); memory at most {most / MIB:.0f} MiB",
        flush=True,
    )
    return process


async def main(pending: int, singles: int, settled: int) -> None:
    async with site() as place:
        print(f"yardstick, bare SQLite inserts: {bare_insert_rate(place.work):,.0f}/s")
        print(f"yardstick, bare confirmed publishes: {await bare_publish_rate(place):,.0f}/s", flush=True)
        if settled:
            await _settle(place, settled)
            print(f"{settled:,} jobs were released and settled before, one a message", flush=True)
        await _fill(place, pending, singles)
        print(f"{pending:,} pending, the last {singles:,} of them single messages, the others in arrays of {ARRAY}")
        process = await _start(place, 0, "state", "disk lost")
        print(_began(place))
        await asyncio.sleep(10.0)
        cpu, began = cpu_seconds([process]), time.perf_counter()
        await asyncio.sleep(IDLE)
        share = (cpu_seconds([process]) - cpu) / (time.perf_counter() - began)
        print(f"idle: {share:.2%} of a core; memory {resident_bytes(process) / MIB:.0f} MiB", flush=True)
        end([process])
        process = await _start(place, 1, "state", "view kept")
        end([process])


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*given, *(1_000_000, 0, 0)[len(given) :]))
