"""Recurring jobs as people declare them, in a file or in code; and what is to be said so that all know of them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.model import names, recurring, text
from amqpjobs.model.fields import Problem
from amqpjobs.model.recurring import Recurring, Schedule
from amqpjobs.payload import JobOptions, carry, check_options

FILE = "file"
"""The origin of schedules from the configuration file."""
_TIMES = ("cron", "timezone", "every", "missed", "paused")


class BadSchedules(Exception):
    """The file of recurring jobs cannot be used; the message names the file, the job and what is wrong."""


def schedule(
    name: str, cls: str, args: list[Any] | dict[str, Any], options: Mapping[str, Any], *, origin: str, **times: Any
) -> Schedule:
    """A checked schedule. `options` are those of `@job`; `times` are cron, timezone, every, missed and paused.

    Raises ValueError or TypeError that says what is wrong.
    """
    if not recurring.is_name(name):
        raise ValueError(f"{name!r} cannot be its name: 1 to 100 of ASCII letters, digits and . _ - : are allowed")
    carry(cls, args)
    job = {"class": cls, "args": args} | check_options(options)
    entry = {"type": "recurring", "op": "declare", "name": name, "origin": origin, "job": job, "at": 0.0} | times
    read = recurring.read_change(entry)
    if not isinstance(read, recurring.Declared):
        raise ValueError(read.reason if isinstance(read, recurring.Refused) else "it is no declaration")
    return read.schedule


def read_file(path: Path) -> list[Schedule]:
    """The schedules of a TOML file, a table each: its name, then `class`, `cron` or `every`, options. BadSchedules."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadSchedules(f"{path}: {error.strerror or error}: AMQPJOBS_RECURRING names the file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSchedules(f"{path}: no TOML: {error}") from None
    return [_read_table(path, name, table) for name, table in tables.items()]


def _read_table(path: Path, name: str, table: Any) -> Schedule:
    try:
        if not isinstance(table, dict):
            raise ValueError(f"a recurring job is a table, [{name}], not {table!r}")
        times = {key: table[key] for key in _TIMES if key in table}
        options = {key: value for key, value in table.items() if key not in (*_TIMES, "class", "args")}
        if unknown := sorted(options.keys() - JobOptions.__annotations__.keys()):
            known = ("class", "args", *_TIMES, *JobOptions.__annotations__)
            raise ValueError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return schedule(name, table.get("class", ""), table.get("args", []), options, origin=FILE, **times)
    except (TypeError, ValueError) as error:
        raise BadSchedules(f"{path}: [{name}]: {error}") from None


def changes(
    known: Mapping[str, Recurring], wanted: Sequence[Schedule], origins: Collection[str], *, by: str, at: float
) -> list[dict[str, Any]]:
    """The entries after which what `origins` keep is what is `wanted`, and nothing else; none where that is so."""
    names = {each.name for each in wanted}
    gone = [name for name, each in known.items() if each.schedule.origin in origins and name not in names]
    new = [each for each in wanted if each.name not in known or known[each.name].schedule != each]
    return [recurring.write_removed(name, by=by, at=at) for name in gone] + [
        recurring.write_declared(each, by=by, at=at) for each in new
    ]


class Line(NamedTuple):
    """A recurring job in a list. `last` and `next` are ticks, in seconds since 1970; `problem`: why it has none."""

    name: str
    cls: str
    queue: str
    times: str
    timezone: str
    missed: str
    origin: str
    paused: bool
    last: int | None
    next: float | None
    problem: str | None


def lines(known: Mapping[str, Recurring], last: Mapping[str, int], now: float) -> list[Line]:
    """All recurring jobs by name, as a list shows them."""
    return [_line(known[name], last.get(name), now) for name in sorted(known)]


def _line(each: Recurring, last: int | None, now: float) -> Line:
    schedule = each.schedule
    job, times, ticks = text.parse(schedule.job), schedule.times, recurring.ticks(each, last, now)
    return Line(
        schedule.name,
        job["class"],
        job.get("queue") or names.DEFAULT_QUEUE,
        schedule.cron or f"every {schedule.every:,} s",
        schedule.timezone if schedule.cron else "",
        schedule.missed,
        schedule.origin,
        each.paused,
        last,
        ticks.due[0] if ticks.due else ticks.next,
        str(times) if isinstance(times, Problem) else None,
    )
