"""The commands of `job_events` as entries, written and read. Their forms are in docs/tracked.md.

Reading is strict: a command that is not well formed is refused, under its uuid where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpjobs.model import fields, names, text, values
from amqpjobs.model.lifecycle import State
from amqpjobs.model.reading import Piece
from amqpjobs.model.tracked import NULL, Flags, Policy, RunAt
from amqpjobs.model.tracked_commands import (
    MOST_TAGS,
    MOST_TEXT,
    SETTLES,
    USUAL,
    Beat,
    Begin,
    Bump,
    Command,
    Delete,
    Dispatch,
    DropQueue,
    GiveBack,
    Report,
    SetQueue,
    Take,
    Withdraw,
)
from amqpjobs.model.tracked_settings import policy_of


def read_command(piece: Piece) -> Command | None:
    """A command as it came; None for one that not even a verdict can be given for."""
    value = piece.value
    try:
        uuid, at = values.text(value["uuid"]), _instant(value["at"])
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

_FLAGS = ("update_data", "update_run_at", "update_retry_strategy", "reset_counts")


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


def _raw(value: Mapping[str, Any], raw: bytes, name: str) -> bytes | None:
    return text.member(raw, name) if name in value else None


def _whole(value: object) -> int:
    """Any integer that SQLite takes, negative ones too."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not an integer")
    if abs(value) > values.MAX_NUMBER:
        raise ValueError("too large")
    return value


def _instant(value: object) -> float:
    """Seconds since 1970, of a time that can be shown."""
    found = values.number(value)
    if not fields.EARLIEST <= found <= fields.LATEST:
        raise ValueError("not between the years 1 and 9999")
    return found


def _flags(value: Mapping[str, Any]) -> Flags:
    if value.keys().isdisjoint(_FLAGS):
        return USUAL
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
        data=_raw(value, raw, "data") or NULL,
        key=_short(value.get("key") or ""),
        type=_short(value.get("class") or ""),
        priority=_whole(value.get("priority", 0)),
        tags=_texts(value.get("tags"), MOST_TAGS),
        run_at=_optional(_instant, value.get("run_at")),
        settings=settings,
        flags=_flags(value),
        existing=value.get("existing") is True,
        jid=_short(value.get("jid") or ""),
        amqp=_amqp(value),
    )


def _read_take(value: Mapping[str, Any], _: bytes) -> Take:
    queue, type_ = _optional(_queue, value.get("queue")), _optional(_short, value.get("class"))
    job = _optional(values.whole, value.get("job"))
    if queue is None and type_ is None and job is None:
        raise ValueError("neither queue nor class nor job")
    return Take(queue, type_, _short(value.get("worker", "")), job)


def _read_begin(value: Mapping[str, Any], raw: bytes) -> Begin:
    if not value.get("class"):
        raise ValueError("no class")
    return Begin(_read_dispatch(value, raw), _short(value.get("worker", "")))


def _read_give_back(value: Mapping[str, Any], _: bytes) -> GiveBack:
    token, run_at = _optional(_short, value.get("token")), _optional(_instant, value.get("run_at"))
    return GiveBack(values.whole(value["job"]), token, run_at)


def _amqp(value: Mapping[str, Any]) -> bool:
    """What is offered to AMQP workers is a job of a class."""
    wanted = value.get("amqp") is True
    if wanted and not value.get("class"):
        raise ValueError("amqp without class")
    return wanted


def _read_report(value: Mapping[str, Any], raw: bytes) -> Report:
    status = _optional(State, value.get("status"))
    if status is not None and status not in SETTLES:
        raise ValueError("no worker's word")
    return Report(
        job=values.whole(value["job"]),
        token=_optional(_short, value.get("token")),
        status=status,
        output=_raw(value, raw, "output"),
        error=_short(value.get("error", "")),
        permanent=value.get("permanent") is True,
        retry_at=_optional(_instant, value.get("retry_at")),
        progress=_optional(values.number, value.get("progress")),
        lines=_texts(value.get("lines"), MOST_TAGS),
    )


_READERS: Mapping[str, Any] = {
    "queue": lambda value, _: SetQueue(_queue(value["queue"]), policy_of(Policy(), value.get("settings") or {})),
    "drop_queue": lambda value, _: DropQueue(_queue(value["queue"])),
    "dispatch": _read_dispatch,
    "take": _read_take,
    "begin": _read_begin,
    "beat": lambda value, _: Beat(values.whole(value["job"]), _optional(_short, value.get("token"))),
    "bump": lambda value, _: Bump(values.text(value["worker"]), _optional(_queue, value.get("queue"))),
    "report": _read_report,
    "give_back": _read_give_back,
    "withdraw": lambda value, _: Withdraw(_queue(value["queue"]), values.text(value["key"])),
    "delete": lambda value, _: Delete(values.whole(value["job"])),
}


# Writing.

_OPS: Mapping[type, str] = {
    SetQueue: "queue",
    DropQueue: "drop_queue",
    Dispatch: "dispatch",
    Take: "take",
    Begin: "begin",
    Beat: "beat",
    Bump: "bump",
    Report: "report",
    GiveBack: "give_back",
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
        "jid": act.jid or None,
        "amqp": act.amqp or None,
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
    Take: lambda act: {"queue": act.queue, "class": act.type, "worker": act.worker or None, "job": act.job},
    Begin: lambda act: {"worker": act.worker or None, **_write_dispatch(act.dispatch)},
    Beat: lambda act: {"job": act.job, "token": act.token},
    Bump: lambda act: {"worker": act.worker, "queue": act.queue},
    Report: _write_report,
    GiveBack: lambda act: {"job": act.job, "token": act.token, "run_at": act.run_at},
    Withdraw: lambda act: {"queue": act.queue, "key": act.key},
    Delete: lambda act: {"job": act.job},
}
