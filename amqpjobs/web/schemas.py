"""What `/openapi.json` says of values that a type alone does not tell: times, durations, names, and bodies that we read
ourselves. Programs make requests of it, so it must allow nothing that is refused for its form."""

from __future__ import annotations

from typing import Any

from amqpjobs.model.fields import LATEST
from amqpjobs.model.tracked_commands import MOST_TAGS, MOST_TEXT
from amqpjobs.model.tracked_settings import MOST_RETRIES, MOST_SECONDS

Schema = dict[str, Any]

QUEUE = r"^[A-Za-z0-9._:\-]{1,200}$"
ABSENT: Schema = {"type": "null"}

TIME: Schema = {
    "description": "A time: seconds since 1970 (from 1e11 on milliseconds), or ISO 8601 with a time of day.",
    "anyOf": [{"type": "number", "maximum": LATEST * 1000}, {"type": "string", "format": "date-time"}],
}
TIME_OR_NULL: Schema = {**TIME, "anyOf": [*TIME["anyOf"], ABSENT]}
TIME_IN_QUERY: Schema = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "string", "pattern": r"^[0-9]{1,11}(\.[0-9]{1,6})?$"},
        {"type": "string", "maxLength": 0},
    ]
}
JID_OR_NULL: Schema = {
    "anyOf": [{"type": "string", "pattern": "^[ -~]{1,255}$"}, {"type": "string", "pattern": "^.{1,63}$"}, ABSENT]
}

_SECONDS: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": MOST_SECONDS}
_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_RETRIES}
POLICY: Schema = {
    "type": "object",
    "description": "Durations in seconds.",
    "properties": {
        **dict.fromkeys(("timeout", "heartbeat_timeout", "expires_after", "min_backoff", "max_backoff"), _SECONDS),
        **dict.fromkeys(("retries", "max_stalls"), _COUNT),
        "retry_delays": {
            "type": ["array", "null"], "maxItems": MOST_RETRIES, "items": {**_SECONDS, "type": "number"}
        },
    },
    "additionalProperties": False,
}  # fmt: skip

_DURATION: Schema = {
    "type": "string",
    "description": "A duration such as 30s, 1h15m5s or 3w2d.",
    "pattern": r"^([0-9]{1,3}w)?([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?[0-9]{1,8}(s|ms)$",  # 63 years at most
}
_DURATION_OR_NULL: Schema = {**_DURATION, "type": ["string", "null"]}
_OCYPOD_SETTINGS: Schema = {
    **dict.fromkeys(("timeout", "heartbeat_timeout", "expires_after"), _DURATION_OR_NULL),
    "retries": _COUNT,
    "retry_delays": {"type": ["array", "null"], "maxItems": MOST_RETRIES, "items": _DURATION},
}
_TAGS: Schema = {
    "type": ["array", "null"],
    "maxItems": MOST_TAGS,
    "items": {"type": "string", "minLength": 1, "maxLength": MOST_TEXT},
}
OCYPOD_QUEUE: Schema = {"type": "object", "properties": _OCYPOD_SETTINGS}
OCYPOD_JOB: Schema = {"type": "object", "properties": {"input": {}, "tags": _TAGS, **_OCYPOD_SETTINGS}}
OCYPOD_REPORT: Schema = {
    "type": "object",
    "properties": {
        "status": {"type": ["string", "null"], "enum": ["completed", "failed", "cancelled", None]},
        "output": {},
    },
}


def body(schema: Schema) -> Schema:
    """What a route says whose body we read ourselves."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def narrowed(schema: Schema, needed: tuple[str, ...] = (), **members: Schema) -> Schema:
    """The schema of an object with some members told more closely, and these needed."""
    return {
        **schema,
        "properties": {**schema["properties"], **members},
        "required": sorted({*schema.get("required", ()), *needed}),
    }
