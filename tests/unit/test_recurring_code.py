"""`@recurring`: what a job function's schedule is, and what is refused while the module is imported."""

from __future__ import annotations

from typing import Any

import pytest

from amqpjobs.jobs import Registry
from amqpjobs.model import text


def test_a_schedule_has_the_jobs_options_and_its_own() -> None:
    jobs = Registry()

    @jobs.recurring("0 3 * * *", timezone="Europe/Rome", missed="skip", retry=1)
    @jobs.recurring(every=60, name="often", args={"what": "all"}, paused=True)
    @jobs.job(queue="reports", retry=9)
    def report(what: str = "some") -> str:
        return what

    assert report("x") == "x"
    often, daily = jobs.schedules
    assert (often.name, often.every, often.cron, often.paused) == ("often", 60, None, True)
    assert text.parse(often.job) == {"class": "report", "args": {"what": "all"}, "queue": "reports", "retry": 9}
    assert (daily.name, daily.cron, daily.timezone, daily.missed) == ("report", "0 3 * * *", "Europe/Rome", "skip")
    assert text.parse(daily.job) == {"class": "report", "args": [], "queue": "reports", "retry": 1}
    assert {each.origin for each in jobs.schedules} == jobs.origins == {f"code:{__name__}"}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cron": "0 3 * *"}, ValueError, "@recurring of report: cron: '0 3 \\* \\*' is not five fields"),
        ({}, ValueError, "either cron or every"),
        ({"every": 60, "timezone": "Europe/Roma"}, None, ""),
        ({"cron": "0 3 * * *", "timezone": "Europe/Roma"}, ValueError, "'Europe/Roma' is not known"),
        ({"every": 60, "name": "a b"}, ValueError, "'a b' cannot be its name"),
        ({"every": 60, "missed": "all"}, ValueError, "neither once nor skip"),
        ({"every": 60, "args": [1, 2]}, TypeError, "too many positional arguments"),
        ({"every": 60, "args": {"who": 1}}, TypeError, "unexpected keyword argument 'who'"),
        ({"every": 60, "args": "all"}, TypeError, "args is a list"),
        ({"every": 60, "retries": 3}, TypeError, "unknown option 'retries'"),
        ({"every": 60, "args": [{1}]}, TypeError, "pass a list"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_written(arguments: dict[str, Any], error: Any, message: str) -> None:
    jobs = Registry()

    @jobs.job
    def report(what: Any = "some") -> None: ...

    if error is None:
        jobs.recurring(**arguments)(report)
        return
    with pytest.raises(error, match=message):
        jobs.recurring(**arguments)(report)
    assert jobs.schedules == []


def test_two_of_one_name_are_refused_and_a_reloaded_module_is_not() -> None:
    jobs = Registry()

    def report() -> None: ...

    first = jobs.recurring(every=60)(jobs.job(report))
    with pytest.raises(ValueError, match="two recurring jobs are called 'report'"):
        jobs.recurring(every=61)(first)
    with pytest.raises(ValueError, match="two recurring jobs are called 'report'"):
        jobs.recurring(every=61, name="report")(jobs.job(name="other")(lambda: None))
    jobs.recurring(every=90)(jobs.job(report))
    assert [each.every for each in jobs.schedules] == [90]
    with pytest.raises(TypeError, match="@recurring goes above @job"):
        jobs.recurring(every=60)(report)  # type: ignore[arg-type]
