"""Three schedulers on one broker, as processes: one leads, and when it is killed the next one goes on."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.scheduler.reign import BATCH
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.link import Link
from tests.broker.bench import Bench, running, scheduled
from tests.broker.programs import Program, Programs, environment
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]


async def three(programs: Programs, settings: Settings, eventually: Eventually) -> list[Program]:
    """Three scheduler processes, the first of them leading, the others standing by."""
    started = []
    for number in range(3):
        program = programs.start("-m", "amqpjobs.scheduler", env=environment(settings))
        started.append(program)
        awaited = "leading scheduled_jobs" if number == 0 else "standing by"
        await eventually(lambda program=program, awaited=awaited: program.search(awaited), timeout=PATIENCE)
    return started


async def schedule(link: Link, total: int, due: float) -> None:
    appender = Appender(link, names.SCHEDULED, clock=SystemClock())
    await appender.append(
        [json.dumps(scheduled(f"s{number}", due)).encode() for number in range(total)], timeout=PATIENCE
    )
    await appender.close()


async def nothing_left(settings: Settings, bench: Bench, eventually: Eventually) -> None:
    """A scheduler that comes last finds nothing to do: what left is settled."""
    count = len(bench.jobs)
    async with running(settings) as last:
        await eventually(lambda: last.leading, timeout=PATIENCE)
        leader = last.leaders[0]

        async def empty() -> bool:
            return await leader.follower.query(leader.view.count) == 0

        await eventually(empty)
    assert len(bench.jobs) == count, "something ran again although nobody was killed"


async def test_sch_05_of_three_schedulers_one_releases_and_nothing_leaves_twice(
    settings: Settings, bench: Bench, link: Link, programs: Programs, eventually: Eventually
) -> None:
    processes = await three(programs, settings, eventually)
    await schedule(link, 500, time.time() + 1)
    await eventually(lambda: len(bench.counts) == 500, timeout=PATIENCE)
    for process in reversed(processes):  # the ones that stand by first, so that none has to take over
        assert process.stop() == 0
    await nothing_left(settings, bench, eventually)
    assert set(bench.counts.values()) == {1}


async def test_sch_05_the_active_one_killed_in_the_middle_of_a_batch_the_next_goes_on(
    settings: Settings, bench: Bench, link: Link, programs: Programs, eventually: Eventually
) -> None:
    processes = await three(programs, settings, eventually)
    total = 3000
    await schedule(link, total, time.time() + 2)
    await eventually(lambda: len(bench.counts) >= 500, timeout=PATIENCE)
    processes[0].send(signal.SIGKILL)
    killed = time.monotonic()
    processes[0].wait()
    standing = processes[1:]
    led = None

    def leading() -> bool:
        nonlocal led
        led = next((each for each in standing if each.search("leading scheduled_jobs")), None)
        return led is not None

    await eventually(leading, timeout=PATIENCE)
    took = time.monotonic() - killed
    await eventually(lambda: len(bench.counts) == total, timeout=PATIENCE)
    for process in sorted(standing, key=lambda each: each is led):
        assert process.stop() == 0
    await nothing_left(settings, bench, eventually)
    duplicates = len(bench.jobs) - total
    print(f"{total} jobs, the leader killed: the next led after {took:.2f} s, {duplicates} jobs left twice")
    assert set(bench.counts.values()) <= {1, 2}
    assert duplicates <= BATCH
