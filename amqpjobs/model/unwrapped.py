"""Entries that no message can hold: the job alone is the message's body, the entry's members are scalar headers.

A broker takes 16 MiB a message, and a job of that size may be in a queue; wrapped into the entry of its failure it
would fit no more. `split` takes such an entry apart for sending, `joined` makes the entry of what arrives, so that
nobody else knows of it. The header of a member is its name with `amqpjobs-` before it and hyphens for underscores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from amqpjobs.model import text
from amqpjobs.model.outcomes import CUT, kept, unkept

Scalar = str | int | float | bool | None

PREFIX = "amqpjobs-"
TYPE = PREFIX + "type"
"""The header that tells such a message from a job that somebody rejected: the entry's `type`."""

LONGEST = 4000
"""Characters that a header holds of a backtrace or message: all headers together go into one frame of 128 KiB."""
LONGEST_PROPERTIES = 32_000

_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?")
_MEMBER = re.compile(r"[a-z][a-z0-9_]{0,60}")
_CUT_SHORT = frozenset({"backtrace", "error_message", "error_class"})
_STRUCTURED = frozenset({"properties", "fault", "rev", "summary"})
"""Members that are no scalars: their header is their JSON."""
_BODIES = ("job", "raw", "raw_base64", "body", "body_base64")
"""Members that hold what the body of the message is."""
_COPIES = frozenset({"again", "carry"})
_OUTLINE = "entry"
"""Of an entry that is written again: the entry itself, as headers."""


class Unwrapped(NamedTuple):
    """A message that stands for an entry."""

    body: bytes
    headers: dict[str, Scalar]


def split(entry: bytes) -> Unwrapped | None:
    """The entry as a message of its job; None when it has neither a job nor the bytes of one."""
    try:
        members = dict(text.members(entry))
        body = _body(members)
        values = {name: text.parse(raw) for name, raw in members.items() if name not in _BODIES}
    except text.NotJson:
        return None
    if body is None:
        return None
    headers = _headers(values)
    if values.get("type") in _COPIES:
        inner = split(body)
        if inner is not None:
            return Unwrapped(inner.body, headers | {PREFIX + _OUTLINE: text.dump(inner.headers).decode()})
    return Unwrapped(body, headers)


def joined(body: bytes, headers: Mapping[str, Any]) -> bytes:
    """The entry that a message with these headers stands for; `body` as it is when it stands for itself."""
    kind = headers.get(TYPE)
    if not isinstance(kind, str):
        return body
    values = _values(headers)
    outline = values.pop(_OUTLINE, None)
    if kind not in _COPIES:
        return text.dump(values | _job(body, values.get("queue")))
    outer = _parsed(outline) if isinstance(outline, str) else None
    whole = joined(body, outer) if isinstance(outer, dict) else body  # anything may have written the header
    inner = kept(whole)
    named = {"raw": "body", "raw_base64": "body_base64"}
    return text.dump(values | {named[name]: value for name, value in inner.items()})


def _body(members: Mapping[str, bytes]) -> bytes | None:
    """What the entry is about, as bytes of its own. Raises NotJson."""
    if "job" in members and text.bare(members["job"])[:1] == b"{":
        return members["job"]
    names = {"raw": "raw", "raw_base64": "raw_base64", "body": "raw", "body_base64": "raw_base64"}
    found = {names[name]: text.parse(raw) for name, raw in members.items() if name in names}
    return unkept(found)


def _headers(values: Mapping[str, Any]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for name, value in values.items():
        header = _header(name, value)
        if header is not None and _MEMBER.fullmatch(name):
            found[PREFIX + name.replace("_", "-")] = header
    return found


def _header(name: str, value: Any) -> Scalar:
    """None for what a header cannot hold: it is left out, as a name that was cut would be another's."""
    if name in _STRUCTURED:
        return _written(value)
    if isinstance(value, str):
        words = text.safe(value)
        if len(words) > LONGEST and name in _CUT_SHORT:
            return words[:LONGEST] + CUT
        return words if len(words) <= LONGEST else None
    if isinstance(value, float):  # as text: AMQP clients may write a float in 32 bits, and lose a minute of a time
        return repr(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _written(value: Any) -> str | None:
    """The JSON of a member; of properties that are too long, only what is short."""
    spelled = text.dump(text.strict(value)).decode()
    if len(spelled) <= LONGEST_PROPERTIES or not isinstance(value, dict):
        return spelled if len(spelled) <= LONGEST_PROPERTIES else None
    return _written({name: each for name, each in value.items() if name in ("priority", "correlation_id")})


def _values(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The members that the headers are."""
    found: dict[str, Any] = {}
    for header, value in headers.items():
        name = header.removeprefix(PREFIX).replace("-", "_")
        if not header.startswith(PREFIX) or name in _BODIES or not isinstance(value, (str, int, float)):
            continue
        found[name] = _value(name, value) if isinstance(value, str) else value
    return found


def _value(name: str, words: str) -> Any:
    if name in _STRUCTURED:
        return _parsed(words)
    if (name == "due" or name.endswith("_at")) and _NUMBER.fullmatch(words):
        return float(words)
    return words


def _parsed(words: str) -> Any:
    try:
        return text.parse(words.encode("utf-8", "surrogatepass"))
    except text.NotJson:
        return None


def _job(body: bytes, queue: Any) -> dict[str, Any]:
    """The members that the body is: a job, or bytes that are none."""
    try:
        value = text.parse(body)
    except text.NotJson:
        return dict(kept(body))
    if not isinstance(value, dict):
        return dict(kept(body))
    raw = text.bare(body)
    if isinstance(queue, str) and value.get("queue") is None and isinstance(value.get("class"), str):
        # it came from there, and goes there again
        raw = text.with_members(raw, {"queue": queue})
    return {"job": text.Verbatim(raw)}
