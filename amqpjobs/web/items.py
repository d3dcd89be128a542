"""The entries of the delayed sets as JSON: as they came, with their identity, and clipped when huge. Pure."""

from __future__ import annotations

from typing import Any

from amqpjobs.model import names, text
from amqpjobs.streams.sqlite_store import Row

WHOLE = 64 * 1024
"""Bytes up to which an entry is listed whole."""
HEAD = 2000
"""Characters shown of what is longer."""
CLIPPED = "… clipped"

_INSTANTS = {names.SCHEDULED: "scheduled_at", names.RETRIES: "retry_at", names.DEAD: "died_at"}
_TYPES = {names.SCHEDULED: "scheduled_job", names.RETRIES: "retry", names.DEAD: "dead_job"}


def item(stream: str, row: Row) -> dict[str, Any]:
    """One entry for a list: strict JSON once dumped, with the member `entry`."""
    if len(row.raw) > WHOLE:
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
    clipped = {"bytes": len(row.raw), "head": clip(head)}
    return {**text.strict(summary), "job": job, "entry": row.entry, "clipped": clipped}


def clip(value: str) -> str:
    """Text for a list: with a marker when there was more."""
    return value if len(value) <= HEAD else value[:HEAD] + CLIPPED
