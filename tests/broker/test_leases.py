"""Tracked jobs in AMQP workers: granted before they run, held under a lease, each ended by its holder alone."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amqpjobs import Fail, Snooze, current
from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names, tracked_ticket
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Policy, Tracked, Word
from amqpjobs.model.tracked_commands import Beat, Dispatch, Report, SetQueue, Take
from amqpjobs.model.tracked_verdicts import read_verdict
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import REPLY_TO, Incoming, Outgoing, Properties
from amqpjobs.streams.sender import Sender
from amqpjobs.streams.tracked_door import TrackedDoor
from tests.broker.conftest import Processes, Watches, Workers
from tests.broker.test_tracked import door as door  # noqa: PLC0414 (a fixture)
from tests.broker.test_tracked import scheduler as scheduler  # noqa: PLC0414 (a fixture)
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]
Publish = Callable[..., Awaitable[None]]


@pytest.fixture
async def publish(link: Link) -> AsyncIterator[Publish]:
    """Publishes a job as a foreign client would."""
    sender = Sender(link, clock=SystemClock())

    async def send(cls: str, *args: Any, jid: str, **members: Any) -> None:
        job = {"jid": jid, "class": cls, "args": args, "queue": "default", **members}
        await sender.publish(Outgoing(json.dumps(job).encode(), names.JOBS_EXCHANGE, "default"), timeout=PATIENCE)

    yield send
    await sender.close()


@pytest.fixture
def jobs() -> Registry:
    return Registry()


class Site(NamedTuple):
    """What a part of the test has; its registry is its own, and its workers are stopped after it."""

    jobs: Registry
    publish: Publish
    workers: Workers
    watch: Watches
    door: TrackedDoor
    client: Client
    eventually: Eventually
    link: Link


async def life(door: TrackedDoor, jid: str, *states: State) -> Tracked:
    """The tracked job of a producer's id, once it is in one of these states."""

    def look() -> Tracked | None:
        found = next((job for job in door.view.store.all_after(-1, 1000) if job.jid == jid), None)
        return found if found is not None and found.state in states else None

    return await door.follower.wait(look, timeout=PATIENCE)


async def a_tracked_job_runs_when_it_is_granted_and_its_life_is_told(its: Site) -> None:
    ran: list[Any] = []

    @its.jobs.job
    async def asynchronous(*args: Any) -> None:
        ran.append((current().jid, args))
        current().tell("begun", progress=40.0)
        current().tell("done", output={"x": [1.5]})

    @its.jobs.job
    def plain(**kwargs: Any) -> None:
        current().tell(progress=50.0)
        ran.append((current().jid, kwargs))

    metrics = await its.watch(names.METRICS)
    await its.publish("asynchronous", 1, 1.5, jid="one", track=True, tags=["t"])
    await its.publish("plain", jid="two", track=True)
    worker = await its.workers(its.jobs)
    for jid in ("one", "two"):
        done = await life(its.door, jid, State.COMPLETED)
        assert (done.queue, done.attempt, done.worker) == ("default", 1, worker.identity.name)
        assert done.progress == {"one": 40.0, "two": 50.0}[jid]
    told = await life(its.door, "one", State.COMPLETED)
    assert told.output == b'{"x":[1.5]}'
    assert [line for _, _, line in await its.door.query(lambda: its.door.view.store.lines(told.id))] == [
        "begun",
        "done",
    ]
    assert sorted(ran) == [("one", (1, 1.5)), ("two", {})]
    found = await metrics.until(2)
    assert {(each["jid"], each["status"]) for each in found} == {("one", "success"), ("two", "success")}
    assert await its.workers.left() == 0


async def a_copy_of_a_job_that_was_granted_is_dropped(its: Site) -> None:
    ran: list[str] = []
    free = asyncio.Event()

    @its.jobs.job
    async def slow(n: int) -> None:
        ran.append(current().jid)
        await free.wait()

    await its.workers(its.jobs)
    await its.publish("slow", 1, jid="copied", track=True)
    await life(its.door, "copied", State.RUNNING)
    await its.publish("slow", 1, jid="copied", track=True)
    await its.publish("slow", 2, jid="last", track=True)
    await life(its.door, "last", State.RUNNING)
    free.set()
    for jid in ("copied", "last"):
        await life(its.door, jid, State.COMPLETED)
    await its.publish("slow", 1, jid="copied", track=True)
    await its.publish("slow", 3, jid="after", track=True)
    await life(its.door, "after", State.COMPLETED)
    assert sorted(ran) == ["after", "copied", "last"]
    assert await its.workers.left() == 0


async def a_failure_is_retried_by_its_own_rules_and_ends_failed(its: Site) -> None:
    tries: list[tuple[str, int, int]] = []

    @its.jobs.job
    async def breaks(kind: str) -> None:
        tries.append((kind, current().attempt, current().retries_left))
        if kind == "final":
            raise Fail("enough")
        if kind == "snoozed" and len([1 for each, *_ in tries if each == kind]) == 1:
            raise Snooze(0.1)
        if kind == "again":
            raise ValueError("no")

    await its.workers(its.jobs)
    await its.publish("breaks", "again", jid="a", track=True, retry=2, retry_delays=[0])
    await its.publish("breaks", "final", jid="f", track=True, retry=2)
    await its.publish("breaks", "snoozed", jid="s", track=True, retry=2)
    again, final = await life(its.door, "a", State.FAILED), await life(its.door, "f", State.FAILED)
    assert (await life(its.door, "s", State.COMPLETED)).retried == 0
    assert sorted(tries) == [
        ("again", 1, 2), ("again", 2, 1), ("again", 3, 0), ("final", 1, 2), ("snoozed", 1, 2), ("snoozed", 1, 2),
    ]  # fmt: skip
    assert (again.error, again.retried, final.error) == ("ValueError: no", 2, "Fail: enough")
    lines = await its.door.query(lambda: [line for _, _, line in its.door.view.store.lines(again.id)])
    assert "ValueError: no" in lines


async def a_cancelled_job_is_not_run_and_its_life_ends(its: Site) -> None:
    ran = []

    @its.jobs.job
    def noted(n: int) -> None:
        ran.append(n)

    await its.client.cancel("c")
    await its.publish("noted", 1, jid="c", track=True)
    await its.publish("noted", 2, jid="d", track=True)
    await its.workers(its.jobs)
    await life(its.door, "c", State.CANCELLED)
    await life(its.door, "d", State.COMPLETED)
    assert ran == [2]


async def a_key_runs_once_at_a_time_and_the_waiting_one_follows(its: Site) -> None:
    running, most, seen = 0, 0, []
    free = asyncio.Event()

    @its.jobs.job
    async def single(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        seen.append(n)
        await free.wait()
        running -= 1

    await its.workers(its.jobs)
    await its.publish("single", 1, jid="first", key="k")
    await life(its.door, "first", State.RUNNING)
    for n in (2, 3, 4):
        await its.publish("single", n, jid=f"then {n}", key="k")
    blocked = await life(its.door, "then 2", State.BLOCKED)
    await its.eventually(lambda: its.door.query(lambda: its.door.view.store.get(blocked.id).data == b"[4]"))  # type: ignore[union-attr]
    free.set()
    await life(its.door, "then 2", State.COMPLETED)
    assert (seen, most) == ([1, 4], 1)


async def test_a_lease_handler_outlives_its_message_and_a_stopped_worker_gives_its_job_back(
    jobs: Registry, publish: Publish, workers: Workers, door: TrackedDoor, scheduler: Scheduler, eventually: Eventually
) -> None:
    """The message is acknowledged when the job is granted, so the broker's timeout never ends it."""
    free = asyncio.Event()

    @jobs.job(lease=True)
    async def long() -> None:
        await free.wait()

    worker = await workers(jobs)
    await publish("long", jid="l", retry=0)
    first = await life(door, "l", State.RUNNING)
    await eventually(lambda: len(worker._processor._ledger) == 0)  # acknowledged
    await workers.stop()
    given_back = await life(door, "l", State.QUEUED)
    assert (given_back.retried, given_back.stalled) == (0, 0)
    free.set()
    await workers(jobs)
    done = await life(door, "l", State.COMPLETED)
    assert (done.id, done.attempt) == (first.id, 2)


async def test_a_lease_is_renewed_while_the_job_runs(
    jobs: Registry, publish: Publish, workers: Workers, door: TrackedDoor, scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually,
) -> None:  # fmt: skip
    monkeypatch.setattr(tracked_ticket, "LEASE", 2.0)
    free = asyncio.Event()

    @jobs.job(lease=True)
    async def long() -> None:
        await free.wait()

    await workers(jobs)
    await publish("long", jid="l")
    job = await life(door, "l", State.RUNNING)
    started = job.started_at or 0.0

    def beaten() -> bool:
        now = door.view.store.get(job.id)
        return now is not None and now.beat_at is not None and now.beat_at > started + 2.5

    await eventually(lambda: door.query(beaten))
    free.set()
    done = await life(door, "l", State.COMPLETED)
    assert (done.stalled, done.attempt) == (0, 1)


async def test_api_01_the_late_word_of_a_former_holder_is_refused_and_its_worker_lives(
    jobs: Registry, publish: Publish, workers: Workers, watch: Watches, door: TrackedDoor, scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A holds a job and falls silent; B gets it; A ends it late: that changes nothing, and A takes the next job."""
    monkeypatch.setattr(tracked_ticket, "LEASE", 2.0)
    free = asyncio.Event()
    ran: list[str] = []

    @jobs.job(lease=True)
    async def held(who: str) -> None:
        ran.append(who)
        try:
            await free.wait()
        except asyncio.CancelledError:
            await free.wait()  # it does not listen, and ends it all the same

    metrics = await watch(names.METRICS)
    worker = await workers(jobs)
    silent = asyncio.Event()

    async def nothing(*_: Any) -> None:
        silent.set()

    monkeypatch.setattr(worker._tracking.leases, "_beat", nothing)
    await publish("held", "A", jid="l")
    first = await life(door, "l", State.RUNNING)
    await worker.quiet()
    lost = await life(door, "l", State.QUEUED)
    assert (lost.stalled, lost.token) == (1, first.token)
    judged = await door.ask(Take(job=first.id, worker="B"), patience=PATIENCE)
    assert judged.verdict.word is Word.DONE

    async def hold() -> None:
        while True:
            await door.ask(Beat(first.id, judged.uuid), patience=PATIENCE)
            await asyncio.sleep(0.2)

    holding = asyncio.create_task(hold())
    free.set()
    (metric,) = await metrics.until(1)
    assert (metric["status"], metric["error_class"]) == ("failed", "LeaseLost")
    now = await door.job(first.id)
    assert now is not None
    assert (now.state, now.worker, now.token) == (State.RUNNING, "B", judged.uuid)
    assert silent.is_set()
    assert ran == ["A"]
    done = await door.ask(Report(first.id, judged.uuid, State.COMPLETED), patience=PATIENCE)
    assert done.verdict.word is Word.DONE
    holding.cancel()


async def what_is_dispatched_by_a_command_is_offered_to_amqp_workers_in_priority_order(its: Site) -> None:
    ran: list[Any] = []

    @its.jobs.job
    async def noted(*args: Any) -> None:
        ran.append(list(args))

    for n, priority in enumerate((10, 0, -5, -10, -15, -7)):
        act = Dispatch("default", b"[%d]" % n, type="noted", priority=priority, amqp=True)
        assert (await its.door.ask(act, patience=PATIENCE)).verdict.word is Word.CREATED
    await its.door.ask(Dispatch("default", b'"word"', type="noted", priority=11, amqp=True), patience=PATIENCE)
    await its.door.follower.wait(lambda: its.door.view.store.to_offer(1) == [] or None, timeout=PATIENCE)
    await its.workers(its.jobs, concurrency=1, prefetch=1)
    await its.eventually(lambda: len(ran) == 7)
    assert ran == [[4], [3], [5], [2], [1], [0], ["word"]]
    assert await its.workers.left() == 0


async def a_taken_job_s_offer_is_stale(its: Site) -> None:
    ran: list[int] = []

    @its.jobs.job
    async def noted(n: int) -> None:
        ran.append(n)

    for n in range(2):
        await its.door.ask(Dispatch("default", b"[%d]" % n, type="noted", amqp=True), patience=PATIENCE)
    await its.door.follower.wait(lambda: its.door.view.store.to_offer(1) == [] or None, timeout=PATIENCE)
    taken = (await its.door.ask(Take("default"), patience=PATIENCE)).job
    assert taken is not None
    await its.workers(its.jobs)
    await its.door.follower.wait(lambda: ran or None, timeout=PATIENCE)
    assert await its.workers.left() == 0
    assert ran == [1]
    now = await its.door.job(taken.id)
    assert now is not None
    assert now.state is State.RUNNING


async def a_foreign_program_is_told_the_verdict(its: Site) -> None:
    replies: asyncio.Queue[Incoming] = asyncio.Queue()
    await its.door.ask(SetQueue("q", Policy()), patience=PATIENCE)
    caller = await (await its.link.connection()).caller(replies.put_nowait)
    for uuid, op, more in (("1", "dispatch", {"data": [1]}), ("2", "take", {}), ("3", "take", {})):
        entry = {"type": "command", "uuid": uuid, "at": SystemClock().wall(), "op": op, "queue": "q", **more}
        await caller.publish(Outgoing(json.dumps(entry).encode(), "", names.EVENTS, Properties(reply_to=REPLY_TO)))
    async with asyncio.timeout(PATIENCE):
        answers = [read_verdict((await replies.get()).body) for _ in range(3)]
    assert [(each.uuid, each.word) for each in answers if each] == [
        ("1", Word.CREATED), ("2", Word.DONE), ("3", Word.EMPTY),
    ]  # fmt: skip
    assert answers[1] is not None
    assert answers[1].granted is not None
    assert (answers[1].granted.token, answers[1].granted.data) == ("2", b"[1]")


HELD = """
import asyncio
import pathlib

from amqpjobs import job


@job
async def held():
    while not pathlib.Path("free").exists():
        await asyncio.sleep(0.02)
"""


async def test_run_05_a_key_is_free_again_after_its_worker_was_killed(
    processes: Processes, door: TrackedDoor, scheduler: Scheduler, tmp_path: Path
) -> None:
    """kill -9 of the worker that holds the one job of a key: the job runs elsewhere, and then the next of the key."""
    await asyncio.to_thread((tmp_path / "handlers.py").write_text, HELD)
    settings = {"timeout": 0.0, "heartbeat_timeout": 1.0, "max_stalls": 3}
    act = Dispatch("default", b"[]", "k", "held", settings=settings, amqp=True)
    first = (await door.ask(act, patience=PATIENCE)).job
    assert first is not None
    killed, heir = [await processes("-A", "handlers", path=tmp_path) for _ in range(2)]
    await killed.ready()
    held = await state_of(door, first.id, State.RUNNING)
    await heir.ready()
    holder, other = (killed, heir) if held.worker.split(":")[1] == str(killed.process.pid) else (heir, killed)
    holder.signal_group(signal.SIGKILL)
    await door.follower.wait(lambda: ((j := door.view.store.get(first.id)) and j.stalled) or None, timeout=PATIENCE)
    blocked = (await door.ask(act, patience=PATIENCE)).job
    assert blocked is not None
    await asyncio.to_thread((tmp_path / "free").touch)
    done = await state_of(door, first.id, State.COMPLETED)
    assert done.worker.split(":")[1] == str(other.process.pid)
    assert done.stalled == 1
    following = await door.ask(act, patience=PATIENCE)
    assert following.job is not None
    await state_of(door, following.job.id, State.COMPLETED)


async def state_of(door: TrackedDoor, id_: int, state: State) -> Tracked:
    def look() -> Tracked | None:
        found = door.view.store.get(id_)
        return found if found is not None and found.state is state else None

    return await door.follower.wait(look, timeout=PATIENCE)


PARTS = (
    a_tracked_job_runs_when_it_is_granted_and_its_life_is_told,
    a_copy_of_a_job_that_was_granted_is_dropped,
    a_failure_is_retried_by_its_own_rules_and_ends_failed,
    a_cancelled_job_is_not_run_and_its_life_ends,
    a_key_runs_once_at_a_time_and_the_waiting_one_follows,
    what_is_dispatched_by_a_command_is_offered_to_amqp_workers_in_priority_order,
    a_taken_job_s_offer_is_stale,
    a_foreign_program_is_told_the_verdict,
)


async def test_tracked_jobs_in_a_worker(
    publish: Publish, workers: Workers, watch: Watches, door: TrackedDoor, client: Client, scheduler: Scheduler,
    eventually: Eventually, link: Link,
) -> None:  # fmt: skip
    """One scheduler for all of it: each part has jobs and workers of its own."""
    for part in PARTS:
        await part(Site(Registry(), publish, workers, watch, door, client, eventually, link))
        await workers.stop()
