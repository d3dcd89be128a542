"""What tracked jobs cost: `python -m benchmarks.tracked [JOBS [KEPT]]` (20,000 and 500,000 unless told otherwise).

Dispatch to finish with a broker and a scheduler process beside: JOBS are dispatched, taken and completed through one
door by many tasks, each waiting for each verdict. Then, without a broker, KEPT ended jobs are folded and looked up.
The yardstick of the same run: as many entries appended and read back by as many tasks, with no fold, no view and no
scheduler. Issue 8 asks for 1,000 a second, verdicts with p99 under 50 ms, 500,000 kept in less than 500 MB, and lookups
under 5 ms.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Word
from amqpjobs.model.tracked_commands import Act, Command, Dispatch, Report, Take
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.service import loop_factory
from amqpjobs.streams.append import Appender
from amqpjobs.streams.follow import Message
from amqpjobs.streams.port import Incoming
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.streams.tracked_view import TrackedView
from amqpjobs.web.__main__ import SWITCH
from benchmarks.delayed_site import Site, site
from benchmarks.processes import running

TASKS = 48
LATENCY_TASKS = 4
TIMED = 200
DATA = json.dumps({"to": "user@example.com", "invoice": 4711, "lines": list(range(20))}).encode()


async def _measure(jobs: int) -> None:
    sys.setswitchinterval(SWITCH)  # as in the process that has such a door
    async with site() as place:
        with running([place.scheduler("scheduler")], place.work / "scheduler.log"):
            door = TrackedDoor(place.settings, SystemClock(), place.work, name="benchmark")
            await door.start()
            try:
                await door.follower.wait_caught_up(60)
                await _lives(door, jobs // 10, TASKS)
                await _told(door, jobs, TASKS)
                await _told(door, jobs // 10, LATENCY_TASKS)
                await _late(door, TIMED)
            finally:
                await door.stop()
                door.close()
        await _bare(place, jobs, TASKS)


async def _bare(place: Site, jobs: int, tasks: int) -> None:
    """Three entries a job, each appended with a confirm and waited for at the stream's other end."""
    appender = Appender(place.link, names.HEARTBEATS, clock=SystemClock())
    waiting: dict[str, asyncio.Future[None]] = {}

    def read(message: Incoming) -> None:
        found = json.loads(message.body)
        for entry in found if isinstance(found, list) else [found]:
            waiting.pop(entry["uuid"]).set_result(None)
        reader.ack(message.tag)

    reader = await place.connection.read(names.HEARTBEATS, read, start="next")

    async def work(first: int) -> None:
        for number in range(first, 3 * jobs, tasks):
            uuid = f"{number:032x}"
            back = waiting[uuid] = asyncio.get_running_loop().create_future()
            act = Dispatch("q", DATA, settings={"timeout": 3600.0})
            await appender.append([write_command(Command(uuid, time.time(), act))])
            await back

    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work(first) for first in range(tasks)))
    took = time.perf_counter() - started
    await appender.close()
    await reader.close()
    print(
        f"yardstick: what {jobs:,} jobs append, appended and read back by {tasks} tasks without a fold: "
        f"{jobs / took:,.0f} a second ({(time.process_time() - cpu) / jobs * 1e6:.0f} us of CPU a job in this process)",
        flush=True,
    )


async def _told(door: TrackedDoor, jobs: int, tasks: int) -> None:
    cpu, started = time.process_time(), time.perf_counter()
    waits = await _lives(door, jobs, tasks)
    took = time.perf_counter() - started
    cuts = statistics.quantiles(waits, n=100)
    print(
        f"{jobs:,} jobs by {tasks} tasks: {jobs / took:,.0f} a second from dispatch to finish "
        f"({(time.process_time() - cpu) / jobs * 1e6:.0f} us of CPU a job in this process); "
        f"a verdict takes {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, the longest {max(waits):.1f} ms",
        flush=True,
    )


async def _lives(door: TrackedDoor, jobs: int, tasks: int) -> list[float]:
    """Dispatch, take and complete `jobs`; the wait for each verdict in milliseconds."""
    waits: list[float] = []

    async def ask(act: Act, *words: Word) -> int:
        started = time.perf_counter()
        judged = await door.ask(act, patience=60)
        waits.append((time.perf_counter() - started) * 1000)
        assert judged.verdict.word in words, judged
        assert judged.verdict.job is not None
        return judged.verdict.job

    async def work(count: int) -> None:
        for _ in range(count):
            await ask(Dispatch("q", DATA, settings={"timeout": 3600.0}), Word.CREATED)
            job = await ask(Take("q", worker="w"), Word.DONE)
            await ask(Report(job, status=State.COMPLETED, output=b'{"ok":true}'), Word.DONE)

    await asyncio.gather(*(work(jobs // tasks) for _ in range(tasks)))
    return waits


async def _late(door: TrackedDoor, jobs: int) -> None:
    """Jobs that nobody ends: how long after its time each is known here to have timed out, in milliseconds."""
    times = {"timeout": 2.0, "heartbeat_timeout": 1.0}
    for setting, seconds in times.items():
        late: list[float] = []

        async def one(number: int, setting: str = setting, seconds: float = seconds, late: list[float] = late) -> None:
            await asyncio.sleep(number / jobs)
            await door.ask(Dispatch(setting, DATA, settings={setting: seconds, "retries": 0}))
            taken = await door.ask(Take(setting, worker="w"))
            assert taken.verdict.job is not None
            while (job := await door.job(taken.verdict.job)) is not None and job.state is State.RUNNING:  # noqa: ASYNC110 - polled, as a client would
                await asyncio.sleep(0.005)
            assert job is not None and job.started_at is not None
            late.append((time.time() - job.started_at - seconds) * 1000)

        await asyncio.gather(*(one(number) for number in range(jobs)))
        cuts = statistics.quantiles(late, n=100)
        print(f"{setting}: {jobs} told {cuts[49]:.0f} ms late, p99 {cuts[98]:.0f} ms, the latest {max(late):.0f} ms")


def _kept(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="amqpjobs-bench-") as folder:
        view = TrackedView(Path(folder))
        started, now = time.perf_counter(), time.time()
        numbers = []
        for first in range(0, count, 500):
            messages = []
            for offset in range(first, min(first + 500, count)):
                numbers.append(offset * 3 << 14)
                messages += _life(offset, now)
            view.fold(messages)
        took = time.perf_counter() - started
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"{count:,} ended jobs kept: {size / 1e6:,.0f} MB; folded at {3 * count / took:,.0f} entries a second")
        waits = []
        for number in random.sample(numbers, min(2000, count)):
            started = time.perf_counter()
            assert view.store.get(number) is not None
            waits.append((time.perf_counter() - started) * 1000)
        cuts = statistics.quantiles(waits, n=100)
        print(f"a lookup by number: {cuts[49]:.3f} ms, p99 {cuts[98]:.3f} ms, the longest {max(waits):.3f} ms")
        view.close()


def _life(n: int, now: float) -> list[Message]:
    """What three messages of one job's life are, as a door writes them."""
    acts: tuple[Act, ...] = (
        Dispatch("q", DATA, settings={"timeout": 3600.0, "expires_after": 0.0}),
        Take("q", worker="w"),
        Report(n * 3 << 14, status=State.COMPLETED, output=b'{"ok":true}'),
    )
    at = now + n / 1000
    return [
        Message(3 * n + i, write_command(Command(f"{int(at * 1000):011x}-{'0' * 8}-{3 * n + i:x}", at, act)))
        for i, act in enumerate(acts)
    ]


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:  # as in the process that has such a door
        runner.run(_measure(given[0] if given else 20_000))
    if kept := given[1] if len(given) > 1 else 500_000:
        _kept(kept)
