"""Tracked jobs on a real broker: verdicts of the fold, times told by the leader, doors that race."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Policy, Tracked, Word
from amqpjobs.model.tracked_commands import Act, Beat, Command, Dispatch, Report, SetQueue, Take
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.streams.tracked_view import TrackedView
from tests.broker.bench import Bench, running
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def opened(settings: Settings, folder: Path) -> AsyncIterator[TrackedDoor]:
    """A door with a view of its own, read to the end of the log."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    door = TrackedDoor(settings, SystemClock(), folder, name="test")
    await door.start()
    try:
        await door.follower.wait_caught_up(PATIENCE)
        yield door
    finally:
        await door.stop()
        door.close()


@pytest.fixture
async def door(settings: Settings, link: Link, tmp_path: Path) -> AsyncIterator[TrackedDoor]:
    await topology.ensure(await link.connection(), settings)
    async with opened(settings, tmp_path / "door") as door:
        yield door


@pytest.fixture
async def scheduler(settings: Settings, door: TrackedDoor, eventually: Eventually) -> AsyncIterator[Scheduler]:
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.tracked is not None and scheduler.tracked.leading)
        yield scheduler


async def ask(door: TrackedDoor, act: Act, word: Word = Word.DONE) -> Tracked:
    judged = await door.ask(act, patience=PATIENCE)
    assert judged.verdict.word is word, judged
    assert judged.job is not None
    return judged.job


async def until(door: TrackedDoor, job: Tracked, state: State) -> Tracked:
    def there() -> Tracked | None:
        now = door.view.store.get(job.id)
        return now if now is not None and now.state is state else None

    return await door.follower.wait(there, timeout=PATIENCE)


async def test_a_job_lives_without_a_leader_until_time_must_tell(door: TrackedDoor) -> None:
    job = await ask(door, Dispatch("q", b"[1]"), Word.CREATED)
    taken = await ask(door, Take("q"))
    assert (taken.id, taken.data) == (job.id, b"[1]")
    await ask(door, Report(job.id, taken.token, State.COMPLETED, b"2"))
    assert (await until(door, job, State.COMPLETED)).output == b"2"


async def test_times_are_told_when_they_are_due(door: TrackedDoor, scheduler: Scheduler) -> None:
    policy = Policy(timeout=0.5, retries=1, retry_delays=(0.3,))
    await door.ask(SetQueue("q", policy), patience=PATIENCE)
    job = await ask(door, Dispatch("q"), Word.CREATED)
    first = await ask(door, Take("q"))
    queued = await until(door, job, State.QUEUED)
    assert first.started_at is not None
    assert queued.updated_at - first.started_at >= 0.8
    assert (queued.retried, queued.outcome) == (1, State.TIMED_OUT)
    second = await ask(door, Take("q"))
    assert second.token != first.token
    judged = await door.ask(Report(job.id, first.token, State.COMPLETED), patience=PATIENCE)
    assert judged.verdict.word is Word.CONFLICT
    await until(door, job, State.TIMED_OUT)


async def test_what_has_ended_expires(door: TrackedDoor, scheduler: Scheduler) -> None:
    job = await ask(door, Dispatch("q", settings={"expires_after": 0.3}), Word.CREATED)
    await ask(door, Report(job.id, status=State.CANCELLED))
    await door.follower.wait(lambda: door.view.store.get(job.id) is None or None, timeout=PATIENCE)


async def test_a_later_time_waits_for_it(door: TrackedDoor, scheduler: Scheduler) -> None:
    run_at = time.time() + 0.5
    job = await ask(door, Dispatch("q", run_at=run_at), Word.CREATED)
    assert (await until(door, job, State.QUEUED)).updated_at >= run_at


async def test_doors_that_race_get_each_job_once(settings: Settings, door: TrackedDoor, tmp_path: Path) -> None:
    jobs = 300
    await asyncio.gather(*(door.ask(Dispatch("q"), patience=PATIENCE) for _ in range(jobs)))
    taken: Counter[int] = Counter()

    async def client(via: TrackedDoor) -> None:
        while (judged := await via.ask(Take("q"), patience=PATIENCE)).job is not None:
            taken[judged.job.id] += 1
            done = await via.ask(Report(judged.job.id, judged.uuid, State.COMPLETED), patience=PATIENCE)
            assert done.verdict.word is Word.DONE

    async with opened(settings, tmp_path / "b") as other, opened(settings, tmp_path / "c") as third:
        await asyncio.gather(*(client(via) for via in (door, other, third) for _ in range(4)))
    assert len(taken) == jobs
    assert set(taken.values()) == {1}


async def test_another_door_and_one_that_starts_again_agree(
    settings: Settings, door: TrackedDoor, tmp_path: Path
) -> None:
    job = await ask(door, Dispatch("q", b'{"x":1.10}', tags=("a",)), Word.CREATED)
    async with opened(settings, tmp_path / "b") as other:
        assert await other.job(job.id) == job
        await ask(other, Take("q"))
    await until(door, job, State.RUNNING)
    async with opened(settings, tmp_path / "b") as again:
        assert await again.query(lambda: again.view.store.tagged("a")) == [job.id]
        await ask(again, Beat(job.id))


async def test_a_foreign_program_dispatches_by_an_entry(door: TrackedDoor, link: Link) -> None:
    publisher = await (await link.connection()).publisher()
    entry = {
        "type": "command",
        "uuid": "mine",
        "at": time.time(),
        "op": "dispatch",
        "queue": "q",
        "key": "k",
        "data": 7,
    }
    await publisher.publish(Outgoing(json.dumps(entry).encode(), "", names.EVENTS))
    await publisher.publish(Outgoing(json.dumps(entry).encode(), "", names.EVENTS))
    judged = await door.follower.wait(lambda: door.view.store.verdict("mine"), timeout=PATIENCE)
    assert judged.word is Word.CREATED
    taken = await ask(door, Take("q"))
    assert (taken.id, taken.key, taken.data) == (judged.job, "k", b"7")
    assert (await door.ask(Take("q"), patience=PATIENCE)).verdict.word is Word.EMPTY


async def test_a_log_that_lost_its_tail_is_another_one_though_it_ends_alike(
    settings: Settings, link: Link, tmp_path: Path
) -> None:
    """The last message that was read may land there again (a repeat of an append): the hundred before it tell."""
    bench, connection = Bench(link), await link.connection()
    bodies = [write_command(Command(f"u{n}", time.time(), Dispatch("q", b"%d" % n))) for n in range(3)]
    for first, jobs in ((bodies[0], [b"0", b"2"]), (bodies[1], [b"1", b"2"])):
        await topology.ensure(connection, settings)
        publisher = await connection.publisher()
        for body in (first, bodies[2]):
            await publisher.publish(Outgoing(body, "", names.EVENTS))
        async with opened(settings, tmp_path / "door") as door:

            def seen(door: TrackedDoor = door, jobs: list[bytes] = jobs) -> bool | None:
                return [job.data for job in door.view.store.all_after(-1, 10)] == jobs or None

            await door.follower.wait(seen, timeout=PATIENCE)
        await bench.delete(names.EVENTS)


async def some_life(door: TrackedDoor) -> list[Tracked]:
    """Jobs in several states, with all that a job may have."""
    await door.ask(SetQueue("q", Policy(expires_after=0.0, retries=2, retry_delays=(3600.0,))), patience=PATIENCE)
    for n in range(3):
        await ask(door, Dispatch("q", b'{"x":1.10}', type="T", tags=("a",), priority=n), Word.CREATED)
        taken = await ask(door, Take("q", worker="w"))
        await ask(door, Report(taken.id, taken.token, progress=50.0, lines=("one", "two")))
        if n != 1:
            status = State.COMPLETED if n == 0 else State.FAILED
            await ask(door, Report(taken.id, taken.token, status, b"[1.10]", error="e"))
    await ask(door, Dispatch("r", key="k"), Word.CREATED)
    await ask(door, Take("r"))
    await ask(door, Dispatch("r", b"2", "k"), Word.CREATED)
    return await door.query(lambda: door.view.store.all_after(-1, 100))


def logs(door: TrackedDoor) -> list[Any]:
    return [door.view.store.lines(job.id) for job in door.view.store.all_after(-1, 100)]


async def test_a_deleted_stream_loses_no_tracked_job(
    settings: Settings, door: TrackedDoor, link: Link, scheduler: Scheduler, eventually: Eventually
) -> None:
    before = await some_life(door)
    lines = await door.query(lambda: logs(door))
    leader = scheduler.tracked
    assert leader is not None
    await eventually(lambda: leader.follower.query(lambda: leader.view.store.all_after(-1, 100) == before))
    await Bench(link).delete(names.EVENTS)
    await door.follower.wait(lambda: door.view.renewals or None, timeout=PATIENCE)
    await door.follower.wait(lambda: door.view.store.stand().sealed or None, timeout=PATIENCE)
    assert await door.query(lambda: door.view.store.all_after(-1, 100)) == before
    assert await door.query(lambda: logs(door)) == lines
    new = await ask(door, Dispatch("q"), Word.CREATED)
    assert new.id > max(job.id for job in before)
    held = next(job for job in before if job.state is State.RUNNING)
    await ask(door, Report(held.id, held.token, State.COMPLETED))
    await eventually(lambda: leader.view.old_files() == [])


async def test_a_reader_without_the_log_s_head_begins_with_pages(
    settings: Settings, door: TrackedDoor, scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amqpjobs.scheduler import tracked
    from amqpjobs.streams import tracked_pages

    await some_life(door)
    monkeypatch.setattr(tracked, "LEAST_SPAN", 0)
    monkeypatch.setattr(TrackedView, "live_bytes", lambda _: 0)
    await ask(door, Dispatch("q"), Word.CREATED)
    await door.follower.wait(lambda: door.view.store.stand().paged_at, timeout=PATIENCE)
    monkeypatch.undo()
    last = await ask(door, Dispatch("q"), Word.CREATED)
    await ask(door, Report(last.id, status=State.CANCELLED))
    monkeypatch.setattr(tracked_pages, "FIRST", -1)  # as if the head were gone: what was read from it is not used
    async with opened(settings, tmp_path / "cold") as cold:
        jobs, expected = (lambda: cold.view.store.all_after(-1, 100)), (lambda: door.view.store.all_after(-1, 100))
        assert await cold.query(jobs) == await door.query(expected)
        assert await cold.query(lambda: logs(cold)) == await door.query(lambda: logs(door))
        assert await cold.query(cold.view.store.queues) == ["q", "r"]
        assert (await cold.query(cold.view.store.stand)).term == (await door.query(door.view.store.stand)).term


async def test_what_a_lost_server_held_is_given_to_others_and_its_late_word_is_refused(
    settings: Settings, door: TrackedDoor, scheduler: Scheduler, tmp_path: Path
) -> None:
    """A server is killed with jobs in its workers' hands: each runs again, and no former holder ends one."""
    jobs = 20
    policy = Policy(timeout=0.0, heartbeat_timeout=1.0, retries=5)
    await door.ask(SetQueue("q", policy), patience=PATIENCE)
    for _ in range(jobs):
        await ask(door, Dispatch("q"), Word.CREATED)
    async with opened(settings, tmp_path / "lost") as lost:
        held = [(await lost.ask(Take("q"), patience=PATIENCE)).job for _ in range(jobs // 2)]
    done: set[int] = set()
    async with asyncio.timeout(PATIENCE):
        while len(done) < jobs:
            judged = await door.ask(Take("q"), patience=PATIENCE)
            if judged.job is None:
                await asyncio.sleep(0.05)
                continue
            told = await door.ask(Report(judged.job.id, judged.uuid, State.COMPLETED), patience=PATIENCE)
            if told.verdict.word is Word.DONE:
                done.add(judged.job.id)
    for job in held:
        assert job is not None
        late = await door.ask(Report(job.id, job.token, State.FAILED), patience=PATIENCE)
        assert late.verdict.word is Word.CONFLICT
