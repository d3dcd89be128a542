"""Recurring jobs on a real broker: each tick is one job, whoever declares it and whoever leads."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.model.recurring import Recurring
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from tests.broker.bench import Bench, TurnedClock, running
from tests.broker.conftest import Workers
from tests.broker.programs import Program, Programs, environment
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]
HOUR = 3600
KILLS = 3
NOON = 1_793_534_400.0
"""12:00 UTC of an ordinary day."""
PACIFIC = ZoneInfo("US/Pacific")


@pytest.fixture
def clock() -> TurnedClock:
    """It is five past twelve."""
    clock = TurnedClock()
    clock.turn_to(NOON + 300)
    return clock


def declare(name: str = "job", *, at: float, **more: Any) -> dict[str, Any]:
    """As a stranger writes it."""
    job = {"class": "Report", "args": [name], "queue": "default"}
    return {"type": "recurring", "op": "declare", "name": name, "job": job, "by": "ann", "at": at} | more


def op(op: str, name: str = "job", *, at: float) -> dict[str, Any]:
    return {"type": "recurring", "op": op, "name": name, "by": "ann", "at": at}


def ticks(bench: Bench) -> list[int]:
    return [job["recurring"]["tick"] for job in bench.jobs]


def in_force(scheduler: Scheduler, name: str = "job") -> Recurring | None:
    return (scheduler.controls.recurring or {}).get(name)


async def idle(scheduler: Scheduler) -> bool:
    """Whether nothing waits: what was claimed is settled."""
    leader = scheduler.leaders[0]
    return await leader.follower.query(leader.view.count) == 0


async def test_declared_over_amqp_it_ticks_is_paused_resumed_and_removed(
    settings: Settings, bench: Bench, clock: TurnedClock, eventually: Eventually
) -> None:
    async with running(settings, clock) as scheduler:
        await bench.put(names.CONTROLS, declare(at=clock.wall(), every=1))
        await eventually(lambda: len(bench.jobs) >= 3)
        job = bench.jobs[0]
        assert (job["class"], job["args"], job["queue"]) == ("Report", ["job"], "default")
        moment = datetime.fromtimestamp(job["recurring"]["tick"], UTC)
        assert job["jid"] == f"job@{moment:%Y-%m-%dT%H:%M:%SZ}"
        await bench.put(names.CONTROLS, op("pause", at=clock.wall()))
        await eventually(lambda: in_force(scheduler).paused)  # type: ignore[union-attr]
        paused = clock.wall()
        clock.turn_to(paused + 300)
        resumed = clock.wall()
        await bench.put(names.CONTROLS, op("resume", at=resumed))
        await eventually(lambda: ticks(bench)[-1] > resumed + 1)
        before = [tick for tick in ticks(bench) if tick <= resumed]
        assert before == list(range(before[0], before[0] + len(before))), "every second"
        assert before[-1] <= paused
        await bench.put(names.CONTROLS, op("remove", at=clock.wall()))
        await eventually(lambda: scheduler.controls.recurring == {})
        await eventually(lambda: idle(scheduler))
    assert set(bench.counts.values()) == {1}


async def test_a_bad_declaration_is_reported_and_changes_nothing(
    settings: Settings, bench: Bench, clock: TurnedClock, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "amqpjobs.scheduler")
    async with running(settings, clock) as scheduler:
        await eventually(lambda: scheduler.leading)
        await bench.put(names.CONTROLS, declare(at=clock.wall(), every=1))
        await bench.put(names.CONTROLS, declare(at=clock.wall(), cron="every day at noon"))
        await bench.put(names.CONTROLS, declare("other", at=clock.wall(), cron="0 0 * * *", timezone="Mars/Base"))
        await bench.put(names.CONTROLS, {"type": "recurring"})
        await eventually(lambda: "Mars/Base" in caplog.text)
        assert "the recurring job job is refused: cron: 'every day at noon' is not five fields" in caplog.text
        count = len(bench.jobs)
        await eventually(lambda: len(bench.jobs) > count)
        assert list(scheduler.controls.recurring or ()) == ["job"]


@pytest.mark.parametrize(("day", "runs"), [(datetime(2026, 11, 1), 25), (datetime(2026, 3, 8), 23)])
async def test_met_03_an_hourly_job_runs_in_each_hour_of_a_long_and_of_a_short_day(
    settings: Settings, bench: Bench, eventually: Eventually, day: datetime, runs: int
) -> None:
    first = day.replace(tzinfo=PACIFIC)
    start, end = first.timestamp(), first.replace(day=day.day + 1).timestamp()
    clock = TurnedClock()
    clock.turn_to(start - 600)
    async with running(settings, clock) as scheduler:
        await bench.put(names.CONTROLS, declare(at=clock.wall(), cron="0 * * * *", timezone="US/Pacific"))
        await eventually(lambda: scheduler.leading and in_force(scheduler))
        moment = start
        while moment < end:
            clock.turn_to(moment)
            passed = int(moment - start) // HOUR + 1
            await eventually(lambda passed=passed: len(bench.jobs) >= passed)
            moment += HOUR / 2
        await eventually(lambda: idle(scheduler))
    assert len(bench.jobs) == runs
    assert ticks(bench) == [int(start) + HOUR * number for number in range(runs)]


async def test_missed_ticks_are_one_run_or_none_as_the_schedule_says(
    settings: Settings, bench: Bench, clock: TurnedClock, eventually: Eventually
) -> None:
    async with running(settings, clock) as scheduler:
        await bench.put(names.CONTROLS, declare("once", at=clock.wall(), cron="0 * * * *"))
        await bench.put(names.CONTROLS, declare("skip", at=clock.wall(), cron="0 * * * *", missed="skip"))
        await eventually(lambda: in_force(scheduler, "skip"))
        clock.turn_to(NOON + HOUR)
        await eventually(lambda: len(bench.jobs) == 2)
        await eventually(lambda: idle(scheduler))
    clock.turn_to(NOON + 5.5 * HOUR)
    async with running(settings, clock) as scheduler:
        await eventually(lambda: len(bench.jobs) == 3)
        clock.turn_to(NOON + 6 * HOUR)
        await eventually(lambda: len(bench.jobs) == 5)
        await eventually(lambda: idle(scheduler))
    ran = {name: [job["recurring"]["tick"] - NOON for job in bench.jobs if job["args"] == [name]] for name in
           ("once", "skip")}  # fmt: skip
    assert ran == {"once": [HOUR, 5 * HOUR, 6 * HOUR], "skip": [HOUR, 6 * HOUR]}


async def test_other_times_take_effect_without_a_tick_of_the_past_or_a_second_one(
    settings: Settings, bench: Bench, clock: TurnedClock, eventually: Eventually
) -> None:
    async with running(settings, clock) as scheduler:
        await bench.put(names.CONTROLS, declare(at=clock.wall(), cron="0 13 * * *"))
        await eventually(lambda: in_force(scheduler))
        clock.turn_to(NOON + HOUR)
        await eventually(lambda: len(bench.jobs) == 1)
        changes = [
            {"cron": "0 13 * * *", "timezone": "Europe/London"},  # the same moment in another zone: not again
            {"cron": "0 * * * *"},  # this hour has ticked
            {"cron": "30 12 * * *"},  # half an hour ago: not before tomorrow
        ]
        for change in changes:
            await bench.put(names.CONTROLS, declare(at=clock.wall(), **change))
            await eventually(
                lambda change=change: (found := in_force(scheduler)) and found.schedule.cron == change["cron"]
            )
        clock.turn_to(NOON + 1.5 * HOUR)
        await bench.put(names.CONTROLS, declare(at=clock.wall(), cron="45 13 * * *"))
        await eventually(lambda: in_force(scheduler).schedule.cron == "45 13 * * *")  # type: ignore[union-attr]
        clock.turn_to(NOON + 1.75 * HOUR)
        await eventually(lambda: len(bench.jobs) >= 2)
        await eventually(lambda: idle(scheduler))
    assert ticks(bench) == [NOON + HOUR, NOON + 1.75 * HOUR]


async def test_a_tick_happens_once_also_for_a_scheduler_that_lost_its_disk_or_whose_stream_was_deleted(
    settings: Settings, bench: Bench, clock: TurnedClock, tmp_path: Path, eventually: Eventually
) -> None:
    async with running(settings, clock) as scheduler:
        await bench.put(names.CONTROLS, declare(at=clock.wall(), cron="0 * * * *"))
        await eventually(lambda: in_force(scheduler))
        clock.turn_to(NOON + HOUR)
        await eventually(lambda: len(bench.jobs) == 1)
        await eventually(lambda: idle(scheduler))
    fresh = settings.model_copy(update={"state_dir": tmp_path / "fresh"})
    async with running(fresh, clock) as scheduler:
        await eventually(lambda: scheduler.leading)
        clock.turn_to(NOON + 2 * HOUR)
        await eventually(lambda: len(bench.jobs) == 2)
        await eventually(lambda: idle(scheduler))
        leader = scheduler.leaders[0]
        await (await bench.link.connection()).delete_queue(names.SCHEDULED)
        await eventually(lambda: leader.view.renewals and leader.leading)
        clock.turn_to(NOON + 3 * HOUR)
        await eventually(lambda: len(bench.jobs) >= 3)
        await eventually(lambda: idle(scheduler))
    assert ticks(bench) == [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]


def scheduler_program(programs: Programs, settings: Settings, **more: str) -> Any:
    return programs.start("-m", "amqpjobs.scheduler", env=environment(settings) | more)


async def test_every_second_ticks_once_across_leaders_that_are_killed(
    settings: Settings, bench: Bench, programs: Programs, eventually: Eventually
) -> None:
    """Killed between any two of its steps: what ticked is published, what did not ticks under the next leader."""
    await bench.put(names.CONTROLS, declare(at=time.time(), every=1))
    for _ in range(KILLS):
        program = scheduler_program(programs, settings)
        aim = len(bench.counts) + 3
        await eventually(lambda aim=aim: len(bench.counts) >= aim)
        program.send(signal.SIGKILL)
        program.wait()
    async with running(settings) as scheduler:
        aim = len(bench.counts) + 3
        await eventually(lambda: len(bench.counts) >= aim)
        await bench.put(names.CONTROLS, op("remove", at=time.time()))
        await eventually(lambda: scheduler.controls.recurring == {} and scheduler.leading)
        await eventually(lambda: idle(scheduler))
    happened = sorted(set(ticks(bench)))
    assert happened == list(range(happened[0], happened[0] + len(happened))), "a tick is missing"
    assert len(bench.counts) == len(happened), "a tick has one jid, however often it is published"
    assert max(bench.counts.values()) <= 1 + KILLS, "again only what was claimed when one was killed"
    print(f"{len(happened)} ticks, {KILLS} kills, {len(bench.jobs) - len(happened)} duplicates")


FILE = """
[nightly]
class = "Report"
cron = "0 3 * * *"
timezone = "Europe/Rome"
args = [1, "two"]
queue = "reports"
retry = 3
missed = "skip"

[ping]
class = "Ping"
every = 1
"""


async def test_the_configuration_file_declares_and_what_it_no_longer_says_is_removed(
    settings: Settings, bench: Bench, tmp_path: Path, eventually: Eventually
) -> None:
    path = tmp_path / "recurring.toml"
    path.write_text(FILE)
    told = settings.model_copy(update={"recurring": path})
    await bench.put(names.CONTROLS, declare("other", at=time.time(), cron="0 0 1 1 *"))
    async with running(told) as scheduler:
        await eventually(lambda: bench.jobs)
        assert sorted(scheduler.controls.recurring or ()) == ["nightly", "other", "ping"]
        since = in_force(scheduler, "nightly").since  # type: ignore[union-attr]
    path.write_text(FILE.partition("[ping]")[0])
    async with running(told) as scheduler:
        await eventually(lambda: sorted(scheduler.controls.recurring or ()) == ["nightly", "other"])
        assert in_force(scheduler, "nightly").since == since  # type: ignore[union-attr]
    async with running(settings) as scheduler:  # knows of no file, and leaves alone what another's said
        await eventually(lambda: scheduler.leading and scheduler.controls.recurring)
        assert sorted(scheduler.controls.recurring or ()) == ["nightly", "other"]


def test_a_file_that_cannot_be_used_is_one_clear_line_and_no_start(
    settings: Settings, programs: Programs, tmp_path: Path
) -> None:
    path = tmp_path / "recurring.toml"
    path.write_text("[a]\nclass = 'C'\ncron = '0 3 * *'")
    program = scheduler_program(programs, settings, AMQPJOBS_RECURRING=str(path))
    assert program.wait() == 1
    assert len(program.lines) == 1
    assert f"{path}: [a]: cron: '0 3 * *' is not five fields" in program.lines[0]


async def test_the_code_of_a_worker_declares_and_what_it_no_longer_has_is_removed(
    settings: Settings, workers: Workers, eventually: Eventually
) -> None:
    ran: list[str] = []
    code, changed = Registry(), Registry()

    @code.recurring(every=1, args=["tick"])
    @code.recurring("0 3 * * *", timezone="Europe/Rome", name="daily")
    @code.job(name="note")
    def note(what: str = "") -> None:
        ran.append(what)

    changed.recurring("0 4 * * *", name="daily")(changed.job(name="note")(note.function))
    async with running(settings) as scheduler:
        await workers(code)
        await eventually(lambda: len(ran) >= 2)
        assert set(ran) == {"tick"}
        assert sorted(scheduler.controls.recurring or ()) == ["daily", "note"]
        await workers(changed)
        await eventually(lambda: sorted(scheduler.controls.recurring or ()) == ["daily"])
        assert in_force(scheduler, "daily").schedule.cron == "0 4 * * *"  # type: ignore[union-attr]


def shell(programs: Programs, settings: Settings, *words: str) -> Program:
    program = programs.start("-m", "amqpjobs", *words, env=environment(settings))
    program.wait(PATIENCE)
    return program


async def test_the_shell_lists_pauses_resumes_runs_and_removes(
    settings: Settings, bench: Bench, programs: Programs, eventually: Eventually
) -> None:
    def said(*words: str) -> str:
        return "\n".join(shell(programs, settings, *words).lines)

    now = time.time()
    async with running(settings) as scheduler:
        await bench.put(names.CONTROLS, declare("monthly", at=now, cron="0 0 1 * *", timezone="Europe/Rome"))
        await bench.put(names.CONTROLS, declare("ping", at=now, every=1))
        await bench.put(names.CONTROLS, declare("bad", at=now, every=0))
        await eventually(lambda: ticks(bench))
        listed = json.loads(await asyncio.to_thread(said, "recurring", "list", "--json"))
        monthly, ping = listed["recurring"]
        assert (monthly["name"], monthly["times"], monthly["timezone"]) == ("monthly", "0 0 1 * *", "Europe/Rome")
        assert monthly["last"] is None
        assert monthly["next"] > now
        assert ping["last"] >= ticks(bench)[0]
        assert [each["name"] for each in listed["refused"]] == ["bad"]
        assert await asyncio.to_thread(said, "recurring", "pause", "ping") == "paused ping"
        await eventually(lambda: in_force(scheduler, "ping").paused)  # type: ignore[union-attr]
        table = await asyncio.to_thread(said, "recurring", "list")
        assert re.search(r"^ping +Report +every 1 s .* paused +once +AMQP$", table, re.MULTILINE)
        jid = await asyncio.to_thread(said, "recurring", "run", "ping")
        await eventually(lambda: bench.counts[jid] == 1)
        assert next(job for job in bench.jobs if job["jid"] == jid)["recurring"] == {"name": "ping"}
        assert await asyncio.to_thread(said, "recurring", "resume", "ping") == "resumed ping"
        await eventually(lambda: not in_force(scheduler, "ping").paused)  # type: ignore[union-attr]
        assert await asyncio.to_thread(said, "recurring", "remove", "ping") == "removed ping"
        await eventually(lambda: in_force(scheduler, "ping") is None)
        nobody = await asyncio.to_thread(shell, programs, settings, "recurring", "pause", "nobody")
        assert nobody.wait() == 1
        assert nobody.lines == ["amqpjobs: no recurring job is called 'nobody'; there are monthly"]
    audit = json.loads(await asyncio.to_thread(said, "audit", "--json"))["items"]
    did = [(each["what"], each["in"], each["via"]) for each in reversed(audit)]
    assert did == [(f"{verb} recurring", "ping", "cli") for verb in ("pause", "run", "resume", "remove")]
