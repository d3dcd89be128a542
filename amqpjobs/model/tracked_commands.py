"""What is asked of tracked jobs: the commands of `job_events`, written and read. Wire forms are in docs/tracked.md.

Reading is strict: a command that is not well formed is refused, under its uuid where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpjobs.model import names, text, values
from amqpjobs.model.lifecycle import State
from amqpjobs.model.reading import Piece
from amqpjobs.model.tracked import NULL, Flags, Policy, RunAt

MOST_SECONDS = 100 * 365 * 86_400.0
"""The longest duration: times stay times."""
MOST_RETRIES = 1000
MOST_TAGS = 100
MOST_TEXT = 4096
"""Characters of an error, a tag, a key, a worker's name or a line of a log."""
USUAL = Flags()
SETTLES = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Create a queue, or give it other settings."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class DropQueue:
    """Delete a queue, and what waits in it."""

    name: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job; with a `key`, the one job of that key that waits. `settings` go over those of its queue.

    `existing`: an unknown queue is an error, and not created.
    """

    queue: str
    data: bytes = NULL
    key: str = ""
    type: str = ""
    priority: int = 0
    tags: tuple[str, ...] = ()
    run_at: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    flags: Flags = USUAL
    existing: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """The next job of a queue, of a type, or of both. The command's uuid is the token of the attempt."""

    queue: str | None = None
    type: str | None = None
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life of one attempt; without a token, of whichever runs."""

    job: int
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Bump:
    """A sign of life of all that a worker runs (of one queue)."""

    worker: str
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker, or an operator who cancels, says of a job; each member may be absent.

    `permanent`: a failure that is not to be retried. `retry_at` is the time of the next try.
    """

    job: int
    token: str | None = None
    status: State | None = None
    output: bytes | None = None
    error: str = ""
    permanent: bool = False
    retry_at: float | None = None
    progress: float | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancel the job of a key, if it has not begun."""

    queue: str
    key: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Forget a job, whatever it does."""

    job: int


Act = SetQueue | DropQueue | Dispatch | Take | Beat | Bump | Report | Withdraw | Delete


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `at` in seconds since 1970 by the clock of who gave it. `act` is None where it cannot be read."""

    uuid: str
    at: float
    act: Act | None
    by: str = ""


def read_command(piece: Piece) -> Command | None:
    """A command as it came; None for one that not even a verdict can be given for."""
    value = piece.value
    try:
        uuid, at = values.text(value["uuid"]), values.number(value["at"])
        by = _short(value.get("by", ""))
    except (KeyError, TypeError, ValueError):
        return None
    try:
        return Command(uuid, at, _READERS[value["op"]](value, piece.raw), by)
    except (KeyError, TypeError, ValueError):
        return Command(uuid, at, None, by)


def write_command(command: Command) -> bytes:
    """The entry of a command."""
    act = command.act
    assert act is not None, "what was not read is not written"
    head = {"type": "command", "uuid": command.uuid, "at": command.at, "op": _OPS[type(act)], "by": command.by}
    return text.dump({name: value for name, value in (head | _WRITERS[type(act)](act)).items() if value is not None})


# Reading.


def policy_of(base: Policy, given: Mapping[str, Any]) -> Policy:
    """`base` with what is given; durations in seconds. Raises TypeError or ValueError for what cannot be."""
    unknown = given.keys() - set(Policy._fields)
    if unknown:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}")
    changes: dict[str, Any] = {name: _SETTINGS[name](value) for name, value in given.items() if value is not None}
    return base._replace(**changes)


def _seconds(value: object) -> float:
    found = values.number(value)
    if not 0 <= found <= MOST_SECONDS:
        raise ValueError(f"{found} is no duration in seconds")
    return found


def _count(value: object) -> int:
    found = values.whole(value)
    if found > MOST_RETRIES:
        raise ValueError(f"more than {MOST_RETRIES}")
    return found


def _delays(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_RETRIES:
        raise TypeError("not a list of durations")
    return tuple(map(_seconds, value))


_SETTINGS: Mapping[str, Callable[[object], Any]] = {
    "timeout": _seconds,
    "heartbeat_timeout": _seconds,
    "expires_after": _seconds,
    "retries": _count,
    "retry_delays": _delays,
    "min_backoff": _seconds,
    "max_backoff": _seconds,
    "max_stalls": _count,
}


def _short(value: object) -> str:
    found = values.line(value)
    if len(found) > MOST_TEXT:
        raise ValueError("too long")
    return found


def _texts(value: object, most: int) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > most:
        raise TypeError("not a list of strings, or too many")
    return tuple(map(_short, value))


def _queue(value: object) -> str:
    if not names.is_queue_name(value):
        raise ValueError("not a queue's name")
    return str(value)


def _optional(read: Any, value: object) -> Any:
    return None if value is None else read(value)


def _raw(raw: bytes, name: str) -> bytes | None:
    return text.member(raw, name)


def _whole(value: object) -> int:
    """Any integer that SQLite takes, negative ones too."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not an integer")
    if abs(value) > values.MAX_NUMBER:
        raise ValueError("too large")
    return value


def _flags(value: Mapping[str, Any]) -> Flags:
    at = value.get("update_run_at", True)
    return Flags(
        data=value.get("update_data", True) is True,
        run_at=RunAt(str(at).lower() if isinstance(at, bool) else at),
        retry_strategy=value.get("update_retry_strategy") is True,
        reset_counts=value.get("reset_counts") is True,
    )


def _read_dispatch(value: Mapping[str, Any], raw: bytes) -> Dispatch:
    settings = value.get("settings") or {}
    policy_of(Policy(), settings)
    return Dispatch(
        queue=_queue(value["queue"]),
        data=_raw(raw, "data") or NULL,
        key=_short(value.get("key") or ""),
        type=_short(value.get("class") or ""),
        priority=_whole(value.get("priority", 0)),
        tags=_texts(value.get("tags"), MOST_TAGS),
        run_at=_optional(values.number, value.get("run_at")),
        settings=settings,
        flags=_flags(value),
        existing=value.get("existing") is True,
    )


def _read_take(value: Mapping[str, Any], _: bytes) -> Take:
    queue, type_ = _optional(_queue, value.get("queue")), _optional(_short, value.get("class"))
    if queue is None and type_ is None:
        raise ValueError("neither queue nor class")
    return Take(queue, type_, _short(value.get("worker", "")))


def _read_report(value: Mapping[str, Any], raw: bytes) -> Report:
    status = _optional(State, value.get("status"))
    if status is not None and status not in SETTLES:
        raise ValueError("no worker's word")
    return Report(
        job=values.whole(value["job"]),
        token=_optional(_short, value.get("token")),
        status=status,
        output=_raw(raw, "output"),
        error=_short(value.get("error", "")),
        permanent=value.get("permanent") is True,
        retry_at=_optional(values.number, value.get("retry_at")),
        progress=_optional(values.number, value.get("progress")),
        lines=_texts(value.get("lines"), MOST_TAGS),
    )


_READERS: Mapping[str, Any] = {
    "queue": lambda value, _: SetQueue(_queue(value["queue"]), policy_of(Policy(), value.get("settings") or {})),
    "drop_queue": lambda value, _: DropQueue(_queue(value["queue"])),
    "dispatch": _read_dispatch,
    "take": _read_take,
    "beat": lambda value, _: Beat(values.whole(value["job"]), _optional(_short, value.get("token"))),
    "bump": lambda value, _: Bump(values.text(value["worker"]), _optional(_queue, value.get("queue"))),
    "report": _read_report,
    "withdraw": lambda value, _: Withdraw(_queue(value["queue"]), values.text(value["key"])),
    "delete": lambda value, _: Delete(values.whole(value["job"])),
}


# Writing.

_OPS: Mapping[type, str] = {
    SetQueue: "queue",
    DropQueue: "drop_queue",
    Dispatch: "dispatch",
    Take: "take",
    Beat: "beat",
    Bump: "bump",
    Report: "report",
    Withdraw: "withdraw",
    Delete: "delete",
}


def _settings(policy: Policy) -> dict[str, Any]:
    return {name: value for name, value in policy._asdict().items() if value is not None}


def _write_dispatch(act: Dispatch) -> dict[str, Any]:
    return {
        "queue": act.queue,
        "key": act.key or None,
        "class": act.type or None,
        "priority": act.priority or None,
        "tags": list(act.tags) or None,
        "run_at": act.run_at,
        "settings": dict(act.settings) or None,
        "update_data": act.flags.data if act.flags.data != USUAL.data else None,
        "update_run_at": act.flags.run_at if act.flags.run_at != USUAL.run_at else None,
        "update_retry_strategy": act.flags.retry_strategy or None,
        "reset_counts": act.flags.reset_counts or None,
        "existing": act.existing or None,
        "data": text.Verbatim(act.data),  # last, where it is found without reading the rest
    }


def _write_report(act: Report) -> dict[str, Any]:
    return {
        "job": act.job,
        "token": act.token,
        "status": act.status,
        "error": act.error or None,
        "permanent": act.permanent or None,
        "retry_at": act.retry_at,
        "progress": act.progress,
        "lines": list(act.lines) or None,
        "output": None if act.output is None else text.Verbatim(act.output),
    }


_WRITERS: Mapping[type, Any] = {
    SetQueue: lambda act: {"queue": act.name, "settings": _settings(act.policy)},
    DropQueue: lambda act: {"queue": act.name},
    Dispatch: _write_dispatch,
    Take: lambda act: {"queue": act.queue, "class": act.type, "worker": act.worker or None},
    Beat: lambda act: {"job": act.job, "token": act.token},
    Bump: lambda act: {"worker": act.worker, "queue": act.queue},
    Report: _write_report,
    Withdraw: lambda act: {"queue": act.queue, "key": act.key},
    Delete: lambda act: {"job": act.job},
}
