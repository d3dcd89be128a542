"""Recurring jobs: what a schedule says, how `controls` carries it, and which of its ticks are to run now.

Wire forms are in docs/protocol.md. A schedule that is not well formed is refused with a reason and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

from amqpjobs.model import fields, names, text
from amqpjobs.model.arrival import read_one
from amqpjobs.model.fields import Problem
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.timetable import Timetable, latest, timetable

GRACE = 60.0
"""Seconds that a tick may be late and is not missed: a failover takes a few."""
SET_BACK = 3 * 3600.0
"""Seconds: a last tick that is further ahead than this was made by a clock that was wrong, and is taken back."""
MOST_BYTES = 1024 * 1024
"""What all schedules together may take in a snapshot of `controls`."""
MOST_LEVELS = 100
"""How deep a schedule's job may be nested."""

Missed = Literal["once", "skip"]
MISSED: tuple[Missed, ...] = ("once", "skip")

_NAME = re.compile(r"[A-Za-z0-9._:\-]{1,100}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A recurring job as it was declared. `job` is the JSON of the job, without a jid; `every` is in seconds.

    `missed` says what becomes of ticks that nobody was there for: one run for all of them, or none. `origin` names
    who keeps the declaration ("file", "code:module"), empty for one that came over AMQP.
    """

    name: str
    job: bytes
    cron: str | None = None
    timezone: str = "UTC"
    every: int | None = None
    missed: Missed = "once"
    paused: bool = False
    origin: str = ""

    @property
    def times(self) -> Timetable | Problem:
        """When it ticks, or why it never does."""
        return timetable(self.cron, self.timezone, self.every)

    @property
    def size(self) -> int:
        """About what it takes in a snapshot."""
        return len(self.job) + len(self.name) + len(self.cron or "") + len(self.timezone) + len(self.origin) + 200


@dataclass(frozen=True, slots=True)
class Recurring:
    """A schedule in force. Ticks count that are later than `since` (seconds): declared, changed or resumed then."""

    schedule: Schedule
    paused: bool
    since: float


class Declared(NamedTuple):
    """Somebody declares a schedule, or changes it."""

    schedule: Schedule
    at: float


class Paused(NamedTuple):
    """A schedule is paused, or resumed."""

    name: str
    on: bool
    at: float


class Removed(NamedTuple):
    """A schedule is no more."""

    name: str


class Refused(NamedTuple):
    """A declaration that has no effect, and why."""

    name: str
    reason: str
    at: float | None


Change = Declared | Paused | Removed


def is_name(name: object) -> bool:
    """Whether a schedule may be called so: 1 to 100 of ASCII letters, digits and `._-:`."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def take(standing: Mapping[str, Recurring], change: Change) -> dict[str, Recurring]:
    """What is in force after a change. A declaration that says what is known already has no effect."""
    found = dict(standing)
    match change:
        case Declared(schedule, at) if room_for(standing, schedule) is None:
            found[schedule.name] = _declared(standing.get(schedule.name), schedule, at)
        case Paused(name, on, at) if name in found and found[name].paused != on:
            old = found[name]
            found[name] = Recurring(old.schedule, on, old.since if on else at)
        case Removed(name):
            found.pop(name, None)
    return found


def _declared(old: Recurring | None, new: Schedule, at: float) -> Recurring:
    """Other times begin now, so that no tick of the past is due by them. A person's pause outlives a deploy."""
    if old is None:
        return Recurring(new, new.paused, at)
    was = old.schedule
    paused = old.paused if was.paused == new.paused else new.paused
    resumed = old.paused and not paused
    same = (was.cron, was.timezone, was.every) == (new.cron, new.timezone, new.every)
    return Recurring(new, paused, old.since if same and not resumed else at)


def refused_for_room(standing: Mapping[str, Recurring], declared: Declared) -> Refused | None:
    """What to report of a declaration that finds no room."""
    problem = room_for(standing, declared.schedule)
    return None if problem is None else Refused(declared.schedule.name, problem, declared.at)


def room_for(standing: Mapping[str, Recurring], schedule: Schedule) -> Problem | None:
    """Why a schedule cannot be added: all of them have to fit one entry."""
    others = sum(each.schedule.size for name, each in standing.items() if name != schedule.name)
    if others + schedule.size <= MOST_BYTES:
        return None
    return Problem(f"all recurring jobs together may take {MOST_BYTES} bytes; with this one they would take more")


# Writing.


def write_declared(schedule: Schedule, *, by: str, at: float) -> dict[str, Any]:
    """The entry that declares a schedule."""
    return {"type": "recurring", "op": "declare"} | _members(schedule) | {"by": by, "at": at}


def write_paused(name: str, *, on: bool, by: str, at: float) -> dict[str, Any]:
    """The entry that pauses a schedule, or resumes it."""
    return {"type": "recurring", "op": "pause" if on else "resume", "name": name, "by": by, "at": at}


def write_removed(name: str, *, by: str, at: float) -> dict[str, Any]:
    """The entry that removes a schedule."""
    return {"type": "recurring", "op": "remove", "name": name, "by": by, "at": at}


def write_standing(each: Recurring) -> dict[str, Any]:
    """One item of a snapshot's list."""
    return _members(each.schedule) | {"state": "paused" if each.paused else "active", "since": each.since}


def _members(schedule: Schedule) -> dict[str, Any]:
    members = {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "every": schedule.every,
        "job": text.Verbatim(schedule.job),
        "missed": schedule.missed,
        "paused": schedule.paused,
        "origin": schedule.origin,
    }
    return {key: value for key, value in members.items() if value is not None}


# Reading.


def read_change(value: Mapping[str, Any]) -> Change | Refused:
    """What an entry of the type `recurring` says."""
    name, when = value.get("name"), fields.instant(value.get("at"))
    shown = text.safe(name[:100]) if isinstance(name, str) else fields.shown(name)

    def refuse(reason: str) -> Refused:
        return Refused(shown, reason, None if isinstance(when, Problem) else when)

    if not is_name(name):
        return refuse("name: 1 to 100 of ASCII letters, digits and . _ - : are allowed")
    if isinstance(when, Problem):
        return refuse(f"at: {when}")
    change = _read_op(value, cast(str, name), when)
    return refuse(change) if isinstance(change, Problem) else change


def _read_op(value: Mapping[str, Any], name: str, when: float) -> Change | Problem:
    match value.get("op"):
        case "pause" | "resume" as op:
            return Paused(name, op == "pause", when)
        case "remove":
            return Removed(name)
        case "declare":
            schedule = read_schedule(value)
            problem = schedule if isinstance(schedule, Problem) else _problem(schedule)
            return problem or Declared(cast(Schedule, schedule), when)
        case other:
            return Problem(f"op: {fields.shown(other)} is none of declare, pause, resume and remove")


def _problem(schedule: Schedule) -> Problem | None:
    """Why a declaration is refused: its times, or a job that no scheduler could read."""
    times = schedule.times
    if isinstance(times, Problem):
        return times
    read = read_one(names.SCHEDULED, tick_entry(schedule, 0), jid=schedule.name)
    return Problem(f"job: {read.error_message}") if isinstance(read, Unreadable) else None


def read_standing(value: Any) -> Recurring | None:
    """One item of a snapshot's list. Whether its zone is known here is asked where it is needed: it must not get lost
    because the machine that wrote a snapshot has an older zone database."""
    if not isinstance(value, dict) or not is_name(value.get("name")):
        return None
    schedule, since = read_schedule(value), fields.instant(value.get("since"))
    if isinstance(schedule, Problem) or isinstance(since, Problem):
        return None
    return Recurring(schedule, value.get("state") == "paused", since)


def read_schedule(value: Mapping[str, Any]) -> Schedule | Problem:
    """The schedule that an entry of a good name declares; its times are not judged here."""
    job = _read_job(value.get("job"))
    problem = job if isinstance(job, Problem) else next(_faults(value), None)
    if isinstance(job, Problem) or problem is not None:
        return Problem(problem)
    origin: Any = value.get("origin")
    return Schedule(
        name=value["name"],
        job=job,
        cron=value.get("cron"),
        timezone=value.get("timezone") or "UTC",
        every=value.get("every"),
        missed=value.get("missed") or "once",
        paused=value.get("paused") is True,
        origin=origin if _is_line(origin) else "",
    )


def _faults(value: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the members of a declaration, null counting as not given."""
    for name, right, wanted in _MEMBERS:
        each = value.get(name)
        if each is not None and not right(each):
            yield Problem(f"{name}: {fields.shown(each)} is {wanted}")


def _is_line(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 300 and value.isprintable()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_MEMBERS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("cron", _is_line, "no cron expression, such as '0 3 * * *'"),
    ("timezone", _is_line, "no name of a time zone, such as Europe/Rome or UTC"),
    ("every", _is_whole, "no whole number of seconds"),
    ("missed", lambda value: value in MISSED, "neither once nor skip"),
    ("paused", lambda value: isinstance(value, bool), "neither true nor false"),
)


def _read_job(value: Any) -> bytes | Problem:
    if not isinstance(value, dict):
        return Problem(f"job: {fields.shown(value)} is no object")
    cls, queue = value.get("class"), value.get("queue")
    if not isinstance(cls, str) or not cls:
        return Problem(f"job: class: {fields.shown(cls)} is no name of one")
    if queue is not None and not names.is_queue_name(queue):
        return Problem(f"job: queue: {fields.shown(queue)} cannot be the name of one")
    raw = text.dump({key: each for key, each in value.items() if key != "jid"})
    try:
        text.parse(raw, depth=MOST_LEVELS)
    except text.NotJson as error:  # a snapshot that held it could not be read, and would be void as a whole
        return Problem(f"job: {error}")
    return raw


# Ticks.


class Ticks(NamedTuple):
    """What is to be done for one schedule: ticks to run now, oldest first, and the moment to look again (None: never).

    `back`: the last tick is to be taken back to now.
    """

    due: list[int]
    next: float | None
    back: bool = False


def ticks(each: Recurring, last: int | None, now: float) -> Ticks:
    """The ticks that are due at `now` and later than `last`, the last one that ran.

    A tick within the last minute runs in any case; of those that were missed before, by a scheduler that was away,
    the latest runs if the schedule says so and no other is due. A clock that was set back waits for `last` to pass.
    """
    times = each.schedule.times
    if each.paused or isinstance(times, Problem):
        return Ticks([], None)
    if last is not None and last > now + SET_BACK:
        return Ticks([], now, back=True)
    base = min(each.since, now) if last is None else max(float(last), min(each.since, now))
    due = []
    tick = times.after(max(base, now - GRACE))
    while tick is not None and tick <= now:
        due.append(tick)
        tick = times.after(tick)
    if not due and each.schedule.missed == "once":
        missed = latest(times, base, now)
        due = [] if missed is None else [missed]
    return Ticks(due, tick)


def tick_jid(name: str, tick: int) -> str:
    """The jid of the job of one tick: a tick that is published twice is recognized by it."""
    return f"{name}@{datetime.fromtimestamp(tick, UTC):%Y-%m-%dT%H:%M:%SZ}"


def tick_entry(schedule: Schedule, tick: int) -> bytes:
    """The scheduled job of one tick; the handler finds name and tick in the job's member `recurring`."""
    return _entry(schedule, tick_jid(schedule.name, tick), tick, {"name": schedule.name, "tick": tick})


def run_entry(schedule: Schedule, jid: str, now: float) -> bytes:
    """The scheduled job of a run that a person asked for; it is no tick."""
    return _entry(schedule, jid, now, {"name": schedule.name})


def _entry(schedule: Schedule, jid: str, at: float, said: dict[str, Any]) -> bytes:
    job = text.with_members(schedule.job, {"recurring": said}, ())
    return text.dump({"type": "scheduled_job", "jid": jid, "scheduled_at": at, "job": text.Verbatim(job)})
