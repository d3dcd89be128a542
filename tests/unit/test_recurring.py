"""When recurring jobs tick, which ticks run, and what a declaration may say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import recurring, text
from amqpjobs.model.arrival import read_one
from amqpjobs.model.controls import ControlLog
from amqpjobs.model.fields import Problem
from amqpjobs.model.messages import ScheduledJob
from amqpjobs.model.recurring import Declared, Recurring, Refused, Schedule
from amqpjobs.model.timetable import Timetable, latest, timetable
from tests.unit.odd import VALUES, maybe, objects

PACIFIC = ZoneInfo("US/Pacific")
JOB = b'{"class":"C","args":[]}'
HOUR = 3600.0
DAY = 86_400.0


def times(cron: str | None = None, zone: str = "UTC", every: int | None = None) -> Timetable:
    found = timetable(cron, zone, every)
    assert not isinstance(found, Problem), found
    return found


def day(year: int, month: int, date: int, zone: ZoneInfo = PACIFIC) -> tuple[float, float]:
    """The first second of a local day, and of the next."""
    first = datetime(year, month, date, tzinfo=zone)
    return first.timestamp(), first.replace(day=date + 1).timestamp()


def walked(found: Timetable, start: float, end: float) -> Iterator[int]:
    """The ticks from `start` on, before `end`."""
    tick = found.after(start - 1)
    while tick is not None and tick < end:
        yield tick
        tick = found.after(tick)


def local(ticks: Iterator[int]) -> list[str]:
    return [datetime.fromtimestamp(tick, PACIFIC).strftime("%H:%M %Z") for tick in ticks]


LONG, SHORT = day(2026, 11, 1), day(2026, 3, 8)


def test_the_days_of_the_change_have_25_and_23_hours() -> None:
    assert (LONG[1] - LONG[0], SHORT[1] - SHORT[0]) == (25 * HOUR, 23 * HOUR)


@pytest.mark.parametrize(("bounds", "runs"), [(LONG, 25), (SHORT, 23)])
def test_met_03_an_hourly_job_ticks_once_in_each_real_hour(bounds: tuple[float, float], runs: int) -> None:
    """By the leader's own rule, its clock going from second to second: nothing twice, nothing left out."""
    each = standing("0 * * * *", timezone="US/Pacific", since=bounds[0] - 1)
    ran: list[int] = []
    now = bounds[0]
    while now < bounds[1]:
        found = recurring.ticks(each, ran[-1] if ran else None, now)
        ran += found.due
        now += 60
    assert len(ran) == runs
    assert {b - a for a, b in pairwise(ran)} == {3600}


@pytest.mark.parametrize(
    ("cron", "bounds", "expected"),
    [
        ("30 1 * * *", LONG, ["01:30 PDT"]),
        ("30 2 * * *", SHORT, ["03:00 PDT"]),
        ("0,30 1 * * *", LONG, ["01:00 PDT", "01:30 PDT"]),
        ("0 2,3 * * *", SHORT, ["03:00 PDT"]),
        ("*/30 1 * * *", LONG, ["01:00 PDT", "01:30 PDT", "01:00 PST", "01:30 PST"]),
        ("*/30 2 * * *", SHORT, []),
    ],
)
def test_a_fixed_time_ticks_once_however_long_the_day_is(
    cron: str, bounds: tuple[float, float], expected: list[str]
) -> None:
    assert local(walked(times(cron, "US/Pacific"), *bounds)) == expected


@given(
    st.sampled_from(["0 * * * *", "30 1 * * *", "*/7 1-3 * * *", "0 2,3 * * *", "0 0 L * *", "15 0-23 * * SUN"]),
    st.sampled_from(["UTC", "US/Pacific", "Europe/Rome", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]),
    st.integers(1_262_304_000, 1_924_905_600),
)
def test_the_next_tick_is_later_and_none_lies_between(cron: str, zone: str, moment: int) -> None:
    found = times(cron, zone)
    tick = found.after(moment)
    assert tick is not None
    assert tick > moment
    assert tick % 60 == 0
    middle = moment + (tick - moment) // 2
    assert found.after(middle) == tick, "a later question about the same gap has the same answer"


@given(st.integers(1, 100_000), st.floats(0, 2e9))
def test_an_interval_counts_from_1970_whoever_asks(every: int, moment: float) -> None:
    tick = times(every=every).after(moment)
    assert tick is not None
    assert tick > moment >= tick - every
    assert tick % every == 0


@given(
    st.integers(0, 10**8), st.integers(0, 10**6), st.sampled_from([("*/5 * * * *", None), ("0 0 1 * *", None), ("", 7)])
)
def test_the_latest_is_the_last_of_all(base: int, more: int, what: tuple[str, int | None]) -> None:
    found = times(what[0] or None, every=what[1])
    now = base + more
    expected = found.after(base)
    if expected is None or expected > now:
        assert latest(found, base, now) is None
        return
    tick = latest(found, base, now)
    assert tick is not None
    assert base < tick <= now
    following = found.after(tick)
    assert following is not None
    assert following > now


def standing(cron: str | None = None, *, since: float = 0.0, paused: bool = False, **more: Any) -> Recurring:
    return Recurring(Schedule("n", JOB, cron, **more), paused, since)


HOURLY = standing(every=3600)


def test_each_tick_runs_once_and_none_before_it_was_declared() -> None:
    each = replace(HOURLY, since=10 * HOUR)
    assert recurring.ticks(each, None, 10 * HOUR) == ([], 11 * HOUR, False)
    assert recurring.ticks(each, None, 11 * HOUR) == ([int(11 * HOUR)], 12 * HOUR, False)
    assert recurring.ticks(each, int(11 * HOUR), 11 * HOUR + 5) == ([], 12 * HOUR, False)


def test_within_the_grace_of_a_failover_every_tick_runs() -> None:
    each = standing(every=1)
    assert recurring.ticks(each, 1000, 1006.5).due == [1001, 1002, 1003, 1004, 1005, 1006]


def test_missed_ticks_are_one_run_or_none() -> None:
    now = 20.5 * HOUR
    assert recurring.ticks(HOURLY, int(3 * HOUR), now).due == [20 * HOUR]
    skipping = standing(every=3600, missed="skip")
    assert recurring.ticks(skipping, int(3 * HOUR), now) == ([], 21 * HOUR, False)
    at_the_tick = 20 * HOUR + 3
    assert recurring.ticks(HOURLY, int(3 * HOUR), at_the_tick).due == [20 * HOUR], (
        "the one that is due makes up for all"
    )
    assert recurring.ticks(skipping, int(3 * HOUR), at_the_tick).due == [20 * HOUR]


def test_a_clock_set_back_repeats_no_tick_and_waits_no_negative_time() -> None:
    last = int(10 * HOUR)
    for now in (9 * HOUR, 9.99 * HOUR, 10 * HOUR):
        due, following, back = recurring.ticks(HOURLY, last, now)
        assert (due, following, back) == ([], 11 * HOUR, False)
        assert following is not None
        assert following > now


def test_a_clock_that_had_been_far_ahead_does_not_silence_a_schedule_for_years() -> None:
    wrong = int(10 * 365 * DAY)
    now = 100.0 * DAY
    assert recurring.ticks(HOURLY, wrong, now) == ([], now, True)
    assert recurring.ticks(HOURLY, int(now), now + 3600).due == [now + 3600]


def test_what_is_paused_or_not_understood_never_ticks() -> None:
    assert recurring.ticks(standing(every=60, paused=True), None, 1e6) == ([], None, False)
    assert recurring.ticks(standing("0 0 * * *", timezone="Nowhere/Land"), None, 1e6) == ([], None, False)


def declare(name: str = "n", **more: Any) -> dict[str, Any]:
    return {"type": "recurring", "op": "declare", "name": name, "at": 100.0, "job": {"class": "C"}, "every": 60} | more


def test_the_job_of_a_tick_says_which_tick_it_is() -> None:
    read = recurring.read_change(declare(job={"class": "C", "args": [2**70, 1.5], "jid": "x", "mine": {"a": None}}))
    assert isinstance(read, Declared)
    raw = recurring.tick_entry(read.schedule, 1_793_523_600)
    entry = read_one("scheduled_jobs", raw, jid="other")
    assert isinstance(entry, ScheduledJob)
    assert (entry.jid, entry.due) == ("n@2026-11-01T09:00:00Z", 1_793_523_600)
    assert entry.job.args == [2**70, 1.5]
    job = text.parse(entry.job_raw)
    assert job["recurring"] == {"name": "n", "tick": 1_793_523_600}
    assert job["mine"] == {"a": None}
    assert "jid" not in job


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"name": ""}, "name: 1 to 100"),
        ({"name": "a/b"}, "name: 1 to 100"),
        ({"name": 7}, "name: 1 to 100"),
        ({"at": None}, "at: null is no time"),
        ({"op": "declaim"}, "declare, pause, resume and remove"),
        ({"job": None}, "job: null is no object"),
        ({"job": {}}, "job: class: null"),
        ({"job": {"class": "C", "queue": "no such!"}}, 'job: queue: "no such!" cannot be the name'),
        ({"job": {"class": "C", "args": 5}}, "job: args: 5 is neither a list nor an object"),
        ({"job": {"class": "C", "args": text.parse(b"[" * 150 + b"]" * 150)}}, "deeper than 100 levels"),
        ({"every": None}, "either cron or every"),
        ({"cron": "* * * * *"}, "either cron or every"),
        ({"every": 0}, "every is a whole number of seconds from 1"),
        ({"every": 1.5}, "every: 1.5 is no whole number"),
        ({"every": True}, "every: true is no whole number"),
        ({"every": None, "cron": "* * * *"}, "five fields"),
        ({"every": None, "cron": "61 * * * *"}, "Bad minute"),
        ({"every": None, "cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"every": None, "cron": "1" * 299 + " * * * *"}, "no cron expression"),
        ({"every": None, "cron": ["*"]}, "no cron expression"),
        ({"every": None, "cron": "0 0 * * *", "timezone": "Mars/Base"}, "'Mars/Base' is not known here"),
        ({"every": None, "cron": "0 0 * * *", "timezone": "../../etc/passwd"}, "is not known here"),
        ({"every": None, "cron": "0 0 * * *", "timezone": "Europe"}, "is not known here"),
        ({"missed": "all"}, 'missed: "all" is neither once nor skip'),
        ({"paused": 1}, "paused: 1 is neither true nor false"),
    ],
)
def test_a_bad_declaration_is_refused_with_its_reason_and_changes_nothing(more: dict[str, Any], reason: str) -> None:
    log = ControlLog()
    log.fold(0, text.dump(declare()))
    before = log.controls
    assert list(before.recurring) == ["n"]
    log.fold(1, text.dump(declare(**more)))
    assert log.controls is before
    (refused,) = log.refused
    assert reason in refused.reason


@given(objects(type=st.just("recurring"), op=maybe(st.sampled_from(["declare", "pause", "resume", "remove"])),
               name=maybe(st.sampled_from(["a", "b"])), at=maybe(st.floats(0, 1e9)), job=maybe(st.just({"class": "C"})),
               cron=maybe(st.sampled_from(["* * * * *", "x"])), every=maybe(st.integers()), missed=VALUES,
               timezone=VALUES, paused=VALUES, origin=VALUES))  # fmt: skip
def test_whatever_comes_is_taken_or_refused(entry: dict[str, Any]) -> None:
    read = recurring.read_change(entry)
    if isinstance(read, Refused):
        assert read.reason
        text.dump([read.name, read.reason])
    if isinstance(read, Declared):
        each = Recurring(read.schedule, False, read.at)
        assert recurring.read_standing(text.parse(text.dump(recurring.write_standing(each)))) == each


def fold(*entries: dict[str, Any]) -> dict[str, Recurring]:
    log = ControlLog()
    for offset, entry in enumerate(entries):
        log.fold(offset, text.dump(entry))
    return dict(log.controls.recurring)


def op(op: str, at: float) -> dict[str, Any]:
    return {"type": "recurring", "op": op, "name": "n", "at": at}


def test_declaring_what_is_known_changes_nothing_so_missed_ticks_are_not_forgotten() -> None:
    assert fold(declare(), declare(at=900.0)) == fold(declare())


def test_other_times_begin_when_they_are_declared_and_other_arguments_do_not() -> None:
    assert fold(declare(), declare(at=900.0, every=61))["n"].since == 900.0
    changed = fold(declare(), declare(at=900.0, job={"class": "D"}))["n"]
    assert (changed.since, changed.schedule.job) == (100.0, b'{"class":"D"}')


def test_a_persons_pause_outlives_a_deploy_and_what_was_paused_is_not_made_up_for() -> None:
    paused = fold(declare(), op("pause", 200.0), declare(at=300.0, job={"class": "D"}))["n"]
    assert (paused.paused, paused.since) == (True, 100.0)
    resumed = fold(declare(), op("pause", 200.0), op("pause", 250.0), op("resume", 400.0), op("resume", 500.0))["n"]
    assert (resumed.paused, resumed.since) == (False, 400.0)
    assert fold(declare(paused=True), declare(at=300.0))["n"] == Recurring(resumed.schedule, False, 300.0)
    assert fold(declare(), op("remove", 200.0)) == {}
    assert fold(op("pause", 1.0), op("remove", 1.0)) == {}


def test_all_schedules_fit_a_snapshot_and_the_one_that_does_not_is_refused() -> None:
    log = ControlLog()
    big = {"class": "C", "args": ["x" * 300_000]}
    for number in range(4):
        log.fold(number, text.dump(declare(f"n{number}", job=big)))
    assert list(log.controls.recurring) == ["n0", "n1", "n2"]
    assert [(each.name, "may take" in each.reason) for each in log.refused] == [("n3", True)]
    log.fold(9, text.dump(declare("n0", job={"class": "C"})))
    log.fold(10, text.dump(declare("n3", job=big)))
    assert list(log.controls.recurring) == ["n0", "n1", "n2", "n3"]


def test_a_snapshot_of_a_version_without_recurring_jobs_forgets_none() -> None:
    old = {"type": "controls_snapshot", "paused": ["q"], "orders": [], "cancelled": [], "at": 1.0}
    assert fold(declare(), old) == fold(declare())
    assert fold(declare(), old | {"recurring": []}) == {}
