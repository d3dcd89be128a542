"""Reading a job: the members that may be odd, and the few that make it no job at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from amqpjobs.model import fields, names, text
from amqpjobs.model.messages import DEFAULT_RETRIES, Job, Unreadable

MALFORMED = "Malformed"
"""The error class of what cannot be read."""


class _Unset:
    """The type of UNSET."""


UNSET: Final = _Unset()
"""No value was given (None is one)."""


_DEFAULTS: dict[str, Any] = {
    "jid": "",
    "cls": "",
    "args": [],
    "queue": "",
    "retry": DEFAULT_RETRIES,
    "retry_count": 0,
    "enqueued_at": None,
    "created_at": None,
    "tags": [],
    "raw": b"",
    "complete": False,
    "backtrace": None,
    "priority": None,
    "timeout": None,
    "retry_delays": None,
    "min_backoff": None,
    "max_backoff": None,
    "expires_in": None,
    "dead": True,
    "track": False,
    "key": None,
    "meta": None,
    "stall_count": 0,
}
"""Copied for each job: that costs half of what making it anew does."""

_RARE: dict[str, Callable[[Any], Any]] = {
    "backtrace": fields.backtrace_lines,
    "tags": fields.tags,
    "priority": fields.priority,
    "timeout": fields.duration,
    "retry_delays": fields.waits,
    "min_backoff": fields.wait,
    "max_backoff": fields.wait,
    "expires_in": fields.duration,
    "dead": lambda value: value is not False,
    "track": lambda value: value is True,
    "key": fields.name,
    "meta": fields.mapping,
    "stall_count": fields.count,
}
"""How the members of a job are read that most jobs do not have; none can have a fault worth refusing the job for."""
_RARE_NAMES = frozenset(_RARE)


def read_job(
    raw: bytes, *, queue: str, jid: str, message_id: str | None = None, value: Any = UNSET
) -> Job | Unreadable:
    """A job as it came from `queue`; `jid` is its name when it and the message have none.

    `value` is what `raw` was parsed to, when that was done already. A queue's name in the job that cannot be one is
    not used: the job stays with the queue that it came from. What is no job keeps `raw` to the byte.
    """
    body = text.bare(raw)
    if value is UNSET:
        try:
            value = text.parse_bare(body)
        except text.NotJson as error:
            return Unreadable(MALFORMED, f"not JSON: {error}", raw, first_name(message_id, jid), queue)
    if not isinstance(value, dict):
        problem = f"a job is an object, not {fields.shown(value)}"
        return Unreadable(MALFORMED, problem, raw, first_name(message_id, jid), queue)
    named = value.get("queue")
    if named != queue and isinstance(named, str) and names.is_queue_name(named):
        queue = named
    own = found = value.get("jid")
    if not (type(own) is str and own and own.isascii()):
        own = first_name(own, message_id, jid)
    read = _built(body, value, queue, own, complete=own == found and queue == named)
    # of what is no job a blank may be the content: a record that lost one is not what was sent
    return replace(read, raw=raw) if body is not raw and isinstance(read, Unreadable) else read


def build_job(raw: bytes, value: dict[str, Any], *, queue: str, jid: str) -> Job | Unreadable:
    """The job that `raw` (parsed: `value`) is, under this jid and for this queue, whatever it says of them itself."""
    complete = value.get("jid") == jid and value.get("queue") == queue
    return _built(text.bare(raw), value, queue, jid, complete=complete)


def _built(raw: bytes, value: dict[str, Any], queue: str, jid: str, *, complete: bool) -> Job | Unreadable:
    """`raw` is bare; `complete`: it names this jid and this queue itself. Whoever knows both need not look again."""
    cls = value.get("class")
    args = value.get("args")
    if not isinstance(cls, str):
        return Unreadable(MALFORMED, f"class: {fields.shown(cls)} is no string", raw, jid, queue)
    if args is None:  # also null: what Go makes of an empty slice
        args = []
    elif not isinstance(args, (list, dict)):
        problem = f"args: {fields.shown(args)} is neither a list nor an object"
        return Unreadable(MALFORMED, problem, raw, jid, queue, text.safe(cls))
    get = value.get
    job = _DEFAULTS.copy()
    job["jid"] = jid
    job["cls"] = cls if cls.isascii() else text.safe(cls)
    job["args"] = args
    job["queue"] = queue
    if (retry := get("retry")) != DEFAULT_RETRIES:
        job["retry"] = fields.retries(retry)
    if count := get("retry_count"):
        job["retry_count"] = fields.count(count)
    job["enqueued_at"] = fields.instant_or_none(get("enqueued_at"))
    job["created_at"] = fields.instant_or_none(get("created_at"))
    job["tags"] = []
    job["raw"] = raw
    job["complete"] = complete
    if not _RARE_NAMES.isdisjoint(value):
        for name in _RARE_NAMES.intersection(value):
            job[name] = _RARE[name](value[name])
    return Job.trusted(job)


def first_name(*candidates: Any) -> str:
    """The first of the candidates that can be a jid; the last one is."""
    for candidate in candidates:
        found = fields.name(candidate)
        if found is not None:
            return found
    return ""
