"""How late jobs leave, and how fast: `python -m benchmarks.delayed_release [SECONDS [BURST]]` (60, 100,000).

500 are due each second, spread evenly; then BURST in the same second. Late is: from the due time until a consumer of
the queue has it, by one clock; so it is somewhat more than due to published. The burst is not consumed while it leaves,
as the yardstick is not: both rates are of publishing. Its order is read off the queues afterwards.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from amqpjobs.model import names
from amqpjobs.streams import topology
from amqpjobs.streams.port import Consumer, Incoming
from benchmarks.delayed_site import Site, alive, arrays, bare_publish_rate, publish, scheduled, site, until, waiting
from benchmarks.processes import BenchmarkError, cpu_seconds, end, last_lines
from benchmarks.statistics import percentile

RATE = 500
QUEUES = ("mail", "default")
PLACES = 512
"""What is published within the same moment may leave in any order."""
LEAD = 15.0
"""Seconds between the first entry and its due time: the scheduler has them all by then."""


class Arrivals:
    """Takes jobs from one queue: which came when, in order."""

    def __init__(self) -> None:
        self.at: list[tuple[int, float]] = []
        self._consumer: Consumer | None = None

    async def begin(self, place: Site, queue: str) -> None:
        """Consume."""
        await topology.ensure_queue(place.connection, place.settings, queue)
        self._consumer = await place.connection.consume(names.broker_queue(queue), self._take, prefetch=2000)

    def _take(self, message: Incoming) -> None:
        self.at.append((json.loads(message.body)["args"][0], time.time()))
        if self._consumer is not None:
            self._consumer.ack(message.tag)

    async def end(self) -> None:
        """Stop."""
        if self._consumer is not None:
            await self._consumer.close()


async def _consumed(
    place: Site, entries: list[dict[str, object]], size: int, timeout: float
) -> list[tuple[int, float]]:
    """Schedule these and take what comes out, in the order of arrival."""
    queues = {name: Arrivals() for name in QUEUES}
    for name, arrivals in queues.items():
        await arrivals.begin(place, name)
    await publish(place.connection, arrays(entries, size), "", names.SCHEDULED)
    try:
        await until(lambda: sum(len(each.at) for each in queues.values()) >= len(entries), timeout=timeout, pause=0.2)
    except TimeoutError:
        taken = {number for each in queues.values() for number, _ in each.at}
        lost = place.connection.lost.done()
        raise BenchmarkError(f"{len(taken)} of {len(entries)} came; connection lost: {lost}") from None
    for arrivals in queues.values():
        await arrivals.end()
    return sorted((taken for each in queues.values() for taken in each.at), key=lambda taken: taken[1])


async def _lateness(place: Site, seconds: int) -> None:
    begin = time.time() + LEAD
    due = {n: begin + n / RATE for n in range(RATE * seconds)}
    arrived = await _consumed(place, [scheduled(n, at) for n, at in due.items()], 50, LEAD + seconds + 60)
    late = [(at - due[number]) * 1000 for number, at in arrived]
    print(
        f"{RATE} due a second for {seconds} s: {len(arrived)} left; late p50 {percentile(late, 0.5):.1f} ms, "
        f"p99 {percentile(late, 0.99):.1f} ms, at most {max(late):.1f} ms, at least {min(late):.1f} ms",
        flush=True,
    )


async def _burst(place: Site, count: int, process: subprocess.Popen[bytes]) -> None:
    yardstick = await bare_publish_rate(place)
    begin = time.time() + LEAD + count / 20_000
    # within one second, in an order of their own: the oldest are to leave first
    due = {n: begin + n * 7919 % count / count for n in range(count)}
    await publish(place.connection, arrays((scheduled(n, at) for n, at in due.items()), 200), "", names.SCHEDULED)

    async def all_out() -> bool:
        return sum([await waiting(place.connection, queue) for queue in QUEUES]) >= count

    if time.time() > begin:
        raise BenchmarkError("they were due before all were scheduled: raise LEAD")
    cpu = cpu_seconds([process])
    await until(all_out, timeout=60 + count / 500, pause=0.05)
    rate, cpu = count / (time.time() - begin), cpu_seconds([process]) - cpu
    behind = sum([_overtaken([due[number] for number, _ in await _drained(place, queue)]) for queue in QUEUES])
    print(f"yardstick, bare confirmed publishes: {yardstick:,.0f}/s")
    print(
        f"{count:,} due in one second: out at {rate:,.0f}/s, {rate / yardstick:.2f} of the yardstick; "
        f"{cpu / count * 1e6:.0f} us of the scheduler's CPU each; {behind} left before one that was due earlier "
        f"and {PLACES} places on"
    )


async def _drained(place: Site, queue: str) -> list[tuple[int, float]]:
    """All that is in a job queue, in its order."""
    arrivals, there = Arrivals(), await waiting(place.connection, queue)
    await arrivals.begin(place, queue)
    await until(lambda: len(arrivals.at) >= there, timeout=60 + there / 500)
    await arrivals.end()
    return arrivals.at


def _overtaken(ranks: list[float]) -> int:
    return sum(ranks[n] > ranks[n + PLACES] for n in range(len(ranks) - PLACES))


async def main(seconds: int, burst: int) -> None:
    async with site() as place:
        process = place.scheduler("state").started(place.work / "scheduler.log")
        try:
            await alive(process, _lateness(place, seconds))
            await alive(process, _burst(place, burst, process))
        except BaseException:
            print(last_lines(place.work / "scheduler.log"))
            raise
        finally:
            end([process])


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(given[0] if given else 60, given[1] if len(given) > 1 else 100_000))
