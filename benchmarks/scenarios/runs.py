"""One run of one product: its queue is filled, workers start, and its depth is watched from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.product import Product
from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, Command, answer, cpu_seconds, last_lines, running
from benchmarks.statistics import figure, steady_rate

LOOK = 0.1
"""Seconds between two looks at a queue's depth."""
LONGEST = 25.0
"""Seconds after which a run is ended: the rate is known by then."""
FIRST_JOB = 30.0
"""Seconds that workers get until the first job is taken."""
STANDSTILL = 6.0
PROOF = 300
AFTERWARDS = 10
"""Jobs that are enqueued by themselves once all the others are there, of every product.

RabbitMQ 4 collects a classic queue's heap more often as long as what it wrote last was a bulk (`amqpjobs.batch.LAST`
says why). Our own client ends a bulk that way; the others are not to be measured on a queue that is slower for that.
"""


@dataclass(slots=True)
class Runs:
    """What several runs of one product gave."""

    rates: list[float] = field(default_factory=list)
    enqueued: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The figures; without rates there is none."""
        named = {"rate": self.rates, "enqueue_rate": self.enqueued, "worker_cpu_us": self.cpu_us}
        return {name: figure(values).as_json() for name, values in named.items() if values}


def prove(product: Product, place: Place) -> None:
    """The warm-up: jobs that leave a mark are queued and run, and all the marks must be there."""
    if not product.proves:
        return
    product.empty(place)
    place.ticks.unlink(missing_ok=True)
    answer(product.enqueue(place, PROOF, "tick"), place.log)
    with running(product.workers(place, 1), place.log):
        deadline = time.monotonic() + FIRST_JOB
        while (seen := place.ticks.stat().st_size if place.ticks.exists() else 0) < PROOF:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{seen} of {PROOF} jobs were run: {last_lines(place.log)}")
            time.sleep(LOOK)


def no_op(product: Product, place: Place, workers: int, jobs: int, runs: Runs) -> None:
    """One run of so many no-op jobs, added to `runs`."""
    product.empty(place)
    told = answer(product.enqueue(place, jobs, "noop"), place.log)
    runs.enqueued.append(told["jobs"] / told["seconds"])
    answer(product.enqueue(place, AFTERWARDS, "noop"), place.log)
    rate, cpu_us = drained(place, product.workers(place, workers), product.left(place))
    runs.rates.append(rate)
    runs.cpu_us.append(cpu_us)


def drained(place: Place, workers: Sequence[Command], left: Callable[[], int]) -> tuple[float, float]:
    """Start workers on a full queue; jobs a second in the steady middle, and their CPU time in µs a job."""
    queued = left()
    if queued == 0:
        raise BenchmarkError("nothing is in the queue after enqueueing")
    with running(workers, place.log) as processes:
        _first_taken(place, left, queued)
        before, used = queued - left(), cpu_seconds(processes)
        samples = watched(left, queued)
        done = samples[-1][1] - before
        cpu = cpu_seconds(processes) - used
        for process in processes:
            if process.poll() is not None:
                raise BenchmarkError(f"a worker ended by itself: {last_lines(place.log)}")
    return steady_rate(samples), cpu / max(1, done) * 1e6


def _first_taken(place: Place, left: Callable[[], int], queued: int) -> None:
    deadline = time.monotonic() + FIRST_JOB
    while left() >= queued:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"no job was taken within {FIRST_JOB:.0f} s: {last_lines(place.log)}")
        time.sleep(LOOK / 2)


def watched(left: Callable[[], int], queued: int, longest: float = LONGEST) -> list[tuple[float, float]]:
    """(Seconds, jobs taken so far) until none is left or `longest` seconds have passed. Raises BenchmarkError.

    A product that stands still with jobs in its queue has no rate.
    """
    begin = moved = time.monotonic()
    samples: list[tuple[float, float]] = []
    while not samples or (samples[-1][1] < queued and samples[-1][0] < longest):
        before = time.monotonic()
        done, now = queued - left(), time.monotonic()
        moved = now if not samples or done > samples[-1][1] else moved
        if now - moved > STANDSTILL:
            raise BenchmarkError(f"nothing was done for {STANDSTILL:.0f} s, with {queued - done} jobs in the queue")
        samples.append(((before + now) / 2 - begin, float(done)))
        time.sleep(LOOK)
    return samples
