"""The entries of the delayed sets as JSON: as they came, with their identity, and clipped when huge. Pure."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from amqpjobs.model import names, text
from amqpjobs.streams.rows import Row

HEAD = 2000
"""Characters shown of what is longer."""
CLIPPED = "… clipped"
LINE = 200
"""Characters of each text in a line of a list page."""

_INSTANTS = {names.SCHEDULED: "scheduled_at", names.RETRIES: "retry_at", names.DEAD: "died_at"}
_TYPES = {names.SCHEDULED: "scheduled_job", names.RETRIES: "retry", names.DEAD: "dead_job"}


def item(stream: str, row: Row) -> dict[str, Any]:
    """One entry for a list: strict JSON once dumped, with the member `entry`."""
    if row.size > len(row.raw):
        return _summary(stream, row)
    try:
        value = text.parse(row.raw, depth=text.ENTRY_DEPTH)
    except text.NotJson:
        return _summary(stream, row)
    if not isinstance(value, dict):
        return _summary(stream, row)
    whole: dict[str, Any] = text.strict(value)
    fault = _fault(row) if stream == names.DEAD and "died_at" not in whole else {}
    return {**fault, **whole, "entry": row.entry}


def _fault(row: Row) -> dict[str, Any]:
    """What is wrong with a dead record that does not tell it itself, such as a job that a worker rejected."""
    told = {"jid": row.jid, "queue": row.queue, "error_class": row.error_class, "error_message": row.error_message}
    return {name: clip(value) for name, value in told.items() if value}


def _summary(stream: str, row: Row) -> dict[str, Any]:
    """What the view knows of an entry that is too long to list (it is not even parsed) or is no object."""
    instant = row.at if stream == names.DEAD else row.due
    summary: dict[str, Any] = {"type": _TYPES[stream], "jid": row.jid, _INSTANTS[stream]: instant}
    if stream != names.SCHEDULED:
        summary |= {
            "retry_count": row.retry_count,
            "error_class": clip(row.error_class),
            "error_message": clip(row.error_message),
        }
    head = row.raw[: HEAD * 4].decode("utf-8", "replace")
    job = {"class": clip(row.cls), "queue": clip(row.queue), "args": [CLIPPED], "tags": row.tags}
    clipped = {"bytes": row.size, "head": clip(head)}
    return {**text.strict(summary), "job": job, "entry": row.entry, "clipped": clipped}


class Line(NamedTuple):
    """One line of a list page: text, cut to what a line holds."""

    entry: str
    jid: str
    at: float | None
    cls: str
    queue: str
    arguments: str
    retry_count: int
    error_class: str
    error_message: str
    tags: list[str]
    claimed: bool
    size: int


def line(stream: str, row: Row) -> Line:
    """One entry for a list page."""
    at = row.at if stream == names.DEAD else row.due
    cls, queue, arguments, error_class, error_message = map(
        _short, (row.cls, row.queue, _arguments(row), row.error_class, row.error_message)
    )
    return Line(
        row.entry, row.jid, at, cls, queue, arguments, row.retry_count, error_class, error_message,
        [_short(tag) for tag in row.tags[:20]], row.claimed, row.size,
    )  # fmt: skip


def _arguments(row: Row) -> str:
    """A job's arguments as JSON; of what has none, or is too long to be looked into, how it begins."""
    value = None
    if row.size == len(row.raw):
        with contextlib.suppress(text.NotJson):
            value = text.parse(row.raw, depth=text.ENTRY_DEPTH)
    job = value.get("job") if isinstance(value, dict) else None
    if isinstance(job, dict):
        return text.dump(text.strict(job.get("args"))).decode()
    return row.raw[: LINE * 4].decode("utf-8", "replace")


def _short(value: str) -> str:
    return value if len(value) <= LINE else value[:LINE] + "…"


def clip(value: str) -> str:
    """Text for a list: with a marker when there was more."""
    return value if len(value) <= HEAD else value[:HEAD] + CLIPPED
