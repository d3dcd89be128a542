"""The scheduler against a real broker: what is due leaves once, what cannot run is buried once, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.model import control, names
from amqpjobs.model.protocol import Command, Op, Target, Verdict
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.link import Link
from tests.broker.bench import Bench, failed, running, scheduled
from tests.patience import PATIENCE, SOON

Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
async def scheduler(settings: Settings, bench: Bench) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    yield scheduler
    await scheduler.stop()


async def test_a_due_job_leaves_on_time_with_its_digits(
    scheduler: Scheduler, bench: Bench, eventually: Eventually
) -> None:
    await eventually(lambda: scheduler.leading)
    due = time.time() + 1.0
    raw = b'{"type":"scheduled_job","jid":"a","scheduled_at":%.3f,"job":{"class":"C","args":[1.10,%d],"x":{"y":1e-7}}}'
    await bench.put(names.SCHEDULED, raw % (due, 2**70))
    await eventually(lambda: bench.jobs)
    assert 0.0 <= bench.arrived["a"] - due < SOON
    assert b'"args":[1.10,%d]' % 2**70 in bench.bodies[0]
    assert b'"x":{"y":1e-7}' in bench.bodies[0]
    assert due - 0.001 <= bench.jobs[0]["enqueued_at"] <= bench.arrived["a"]
    assert bench.jobs[0]["queue"] == "default"


@pytest.mark.parametrize("due", [0, 946684800, -1, -1e12])
async def test_sch_02_what_is_long_due_runs_once_at_once(
    scheduler: Scheduler, bench: Bench, eventually: Eventually, due: float
) -> None:
    await bench.put(names.SCHEDULED, scheduled("old", due))
    await bench.put(names.SCHEDULED, scheduled("year", time.time() - 365 * 86400))
    await eventually(lambda: len(bench.jobs) == 2)
    await eventually(lambda: _empty(scheduler))
    assert bench.counts == {"old": 1, "year": 1}


async def _empty(scheduler: Scheduler) -> bool:
    counts = [await leader.follower.query(leader.view.count) for leader in scheduler.leaders[:2]]
    return counts == [0, 0]


BAD: list[bytes] = [
    b"",
    b"{",
    b"\xff\xfe",
    json.dumps(scheduled("null", None)).encode(),
    json.dumps(scheduled("nan", float("nan"))).encode(),
    json.dumps(scheduled("true", True)).encode(),
    json.dumps(scheduled("digits", "1800000000")).encode(),
    json.dumps(scheduled("soon", "soon")).encode(),
    b'{"type":"scheduled_job","jid":"inf","scheduled_at":1e999,"job":{"class":"C","args":[]}}',
    json.dumps(scheduled("queue", 1.0, queue="no such name!")).encode(),
    b'{"type":"scheduled_job","jid":"jobless","scheduled_at":1}',
]


async def test_sch_06_bad_entries_are_recorded_once_and_good_ones_run(
    settings: Settings, bench: Bench, eventually: Eventually
) -> None:
    async with running(settings) as first:
        for stream, time_of in ((names.SCHEDULED, "scheduled_at"), (names.RETRIES, "retry_at")):
            await bench.put(stream, good(stream, "before"))
            for body in BAD:
                await bench.put(stream, body.replace(b"scheduled_at", time_of.encode()))
            await bench.put(stream, b"[]")
            await bench.put(stream, good(stream, "after"))
        await eventually(lambda: len(bench.jobs) == 4 and len(bench.dead) == 2 * len(BAD))
        await eventually(lambda: _empty(first))  # what is published and not settled yet would be published again
    async with running(settings) as again:  # a restart reads none of them again
        await eventually(lambda: again.leading)
        await bench.put(names.SCHEDULED, good(names.SCHEDULED, "last"))
        await eventually(lambda: "scheduled_jobs last" in bench.counts)
        await eventually(lambda: _empty(again))
    assert set(bench.counts.values()) == {1}
    assert len(bench.dead) == 2 * len(BAD)
    classes = Counter(record["error_class"] for record in bench.dead)
    assert classes == {"Malformed": 2 * len(BAD) - 2, "Unroutable": 2}
    raws = [record["raw"] for record in bench.dead if "raw" in record]
    assert "{" in raws
    assert sum("raw_base64" in record for record in bench.dead) == 2


def good(stream: str, name: str) -> dict[str, Any]:
    jid = f"{stream} {name}"
    if stream == names.SCHEDULED:
        return scheduled(jid, time.time())
    return failed(jid, time.time())


async def test_a_retry_comes_back_with_its_count(scheduler: Scheduler, bench: Bench, eventually: Eventually) -> None:
    await bench.put(names.RETRIES, failed("r", time.time() + 0.2, count=7))
    await eventually(lambda: bench.jobs)
    assert bench.jobs[0]["retry_count"] == 7


async def command(scheduler: Scheduler, bench: Bench, stream: str, op: Op, jid: str, **more: Any) -> list[Verdict]:
    wish = Command(uuid=f"{op}{jid}", op=op, targets=(Target(jid, None),), at=time.time(), by="test", **more)
    await bench.put(stream, control.write_command(wish))
    leader = next(leader for leader in scheduler.leaders if leader.view.stream == stream)
    return await leader.follower.wait(lambda: leader.view.verdicts(wish.uuid), timeout=PATIENCE)


async def test_commands_are_judged_and_obeyed(scheduler: Scheduler, bench: Bench, eventually: Eventually) -> None:
    for jid in ("deleted", "triggered", "killed", "put off"):
        await bench.put(names.SCHEDULED, scheduled(jid, time.time() + 3600))
    assert await command(scheduler, bench, names.SCHEDULED, Op.DELETE, "deleted") == [Verdict.DONE]
    assert await command(scheduler, bench, names.SCHEDULED, Op.TRIGGER, "triggered") == [Verdict.DONE]
    assert await command(scheduler, bench, names.SCHEDULED, Op.KILL, "killed") == [Verdict.DONE]
    later = {"due": time.time() + 7200}
    assert await command(scheduler, bench, names.SCHEDULED, Op.RESCHEDULE, "put off", **later) == [Verdict.DONE]
    assert await command(scheduler, bench, names.SCHEDULED, Op.DELETE, "nobody") == [Verdict.NOT_FOUND]
    await eventually(lambda: bench.jobs and bench.dead)
    leader = scheduler.leaders[0]
    await eventually(lambda: _is_one(scheduler))
    assert [row.jid for row in await leader.follower.query(lambda: leader.view.page(10))] == ["put off"]
    assert bench.counts == {"triggered": 1}
    assert [(record["jid"], record["error_class"]) for record in bench.dead] == [("killed", "Killed")]
    assert await command(scheduler, bench, names.DEAD, Op.TRIGGER, "killed") == [Verdict.DONE]
    await eventually(lambda: bench.counts["killed"] == 1)
    assert bench.jobs[-1]["retry_count"] == 0


async def _is_one(scheduler: Scheduler) -> bool:
    leader = scheduler.leaders[0]
    return await leader.follower.query(leader.view.count) == 1


async def test_two_stand_one_leads_and_the_other_takes_over(
    settings: Settings, bench: Bench, eventually: Eventually
) -> None:
    async with running(settings) as first:
        await eventually(lambda: first.leading)
        async with running(settings) as second:
            for number in range(20):
                await bench.put(names.SCHEDULED, scheduled(f"a{number}", time.time()))
            await eventually(lambda: len(bench.jobs) == 20)
            assert not second.leading
            await first.stop()
            await eventually(lambda: second.leading)
            await bench.put(names.SCHEDULED, scheduled("b", time.time()))
            await eventually(lambda: "b" in bench.counts)
    assert set(bench.counts.values()) == {1}


async def test_a_scheduler_that_is_stopped_settles_what_it_has_published(
    settings: Settings, bench: Bench, eventually: Eventually
) -> None:
    jids = {f"s{number}" for number in range(600)}
    appender = Appender(bench.link, names.SCHEDULED, clock=SystemClock())
    await appender.append([json.dumps(scheduled(jid, time.time())).encode() for jid in sorted(jids)])
    await appender.close()
    async with running(settings):
        await eventually(lambda: bench.jobs)
    async with running(settings) as last:
        await eventually(lambda: set(bench.counts) == jids)
        await eventually(lambda: _empty(last))
    assert set(bench.counts.values()) == {1}


async def test_losing_jobs_leader_ends_the_reign_and_nothing_runs_twice(
    scheduler: Scheduler, bench: Bench, eventually: Eventually
) -> None:
    await eventually(lambda: scheduler.leading)
    term = scheduler.leaders[0].view.facts().term
    await (await bench.link.connection()).delete_queue(names.LEADER_QUEUE)
    await bench.put(names.SCHEDULED, scheduled("x", time.time()))
    await eventually(lambda: scheduler.leading and scheduler.leaders[0].view.facts().term != term)
    await eventually(lambda: bench.counts["x"] == 1)
    await eventually(lambda: _empty(scheduler))
    assert bench.counts == {"x": 1}


async def test_a_stream_deleted_under_the_leader_loses_nothing_that_it_knew(
    scheduler: Scheduler, bench: Bench, eventually: Eventually
) -> None:
    for jid in ("soon", "later"):
        await bench.put(names.SCHEDULED, scheduled(jid, time.time() + 3600))
    leader = scheduler.leaders[0]
    await leader.follower.wait(lambda: leader.view.count() == 2 or None, timeout=PATIENCE)
    await bench.delete(names.SCHEDULED)
    await eventually(lambda: leader.view.renewals)
    await leader.follower.wait(lambda: leader.view.count() == 2 or None, timeout=PATIENCE)
    assert await command(scheduler, bench, names.SCHEDULED, Op.TRIGGER, "soon") == [Verdict.DONE]
    await eventually(lambda: bench.counts["soon"] == 1)
    await eventually(lambda: _is_one(scheduler))
    (row,) = await leader.follower.query(lambda: leader.view.page(10))
    assert row.jid == "later"
    assert "/" in row.entry
    assert not leader.view.old()
    assert await command(scheduler, bench, names.SCHEDULED, Op.DELETE, "later") == [Verdict.DONE]


@pytest.mark.parametrize("when", ["while it bids", "while it leads"])
async def test_a_reign_notices_at_once_that_its_stream_was_made_anew(
    settings: Settings, bench: Bench, eventually: Eventually, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had appended went down with the stream: waiting for that to be folded would be waiting in vain."""
    if when == "while it leads":
        monkeypatch.setattr("amqpjobs.scheduler.term.FOLD_TIMEOUT", 2 * PATIENCE)  # so that only noticing can pass
    async with running(settings) as scheduler:
        leader = scheduler.leaders[0]
        await eventually(lambda: leader.leading if when == "while it leads" else scheduler.election.held.is_set())
        for _ in range(3):
            before = leader.reign
            await bench.delete(names.SCHEDULED)
            if when == "while it leads":
                await eventually(lambda before=before: leader.reign is not before and leader.leading)
        await eventually(lambda: leader.leading)
        await bench.put(names.SCHEDULED, scheduled("x", time.time()))
        await eventually(lambda: bench.counts["x"] == 1)


async def spawn(settings: Settings) -> asyncio.subprocess.Process:
    environment = os.environ | {"AMQPJOBS_URL": settings.url, "AMQPJOBS_STATE_DIR": str(settings.state_dir)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "amqpjobs.scheduler", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    while b"scheduler ready" not in (line := await process.stderr.readline()):
        assert line, "the scheduler ended before it was ready"
    return process


async def test_killed_in_the_middle_of_a_batch_every_job_leaves(
    settings: Settings, bench: Bench, link: Link, eventually: Eventually
) -> None:
    """The window for duplicates is what was claimed and not settled: at most one batch a kill."""
    total, kills = 1500, 3
    due = time.time() + 6
    appender = Appender(link, names.SCHEDULED, clock=SystemClock())
    await appender.append([json.dumps(scheduled(f"k{n}", due)).encode() for n in range(total)], timeout=PATIENCE)
    for kill in range(kills):
        process = await spawn(settings)
        aim = min(total - 1, 150 + kill * 400)
        await eventually(lambda aim=aim: len(bench.counts) >= aim)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await spawn(settings)
    await eventually(lambda: len(bench.counts) == total)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    duplicates = len(bench.jobs) - total
    print(f"{total} jobs, {kills} kills, {duplicates} duplicates")
    assert duplicates <= kills * 256
    async with running(settings) as scheduler:
        await eventually(lambda: scheduler.leading)
        await eventually(lambda: _empty(scheduler))
    assert len(bench.jobs) - total == duplicates, "a restart ran something again"


async def test_it_says_in_one_line_why_it_cannot_serve(settings: Settings) -> None:
    environment = os.environ | {"AMQPJOBS_URL": "amqp://nobody:secret@127.0.0.1:1/x", "AMQPJOBS_STATE_DIR": "/nowhere"}
    environment["AMQPJOBS_STATE_DIR"] = str(settings.state_dir)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "amqpjobs.scheduler", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"secret" not in errors
    assert len(errors.strip().splitlines()) == 1
