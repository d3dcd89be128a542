"""Ocypod's JSON: what its bodies mean, and how a tracked job looks to its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from amqpjobs.model import names, text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Policy, Tracked
from amqpjobs.model.tracked_commands import MOST_TAGS, MOST_TEXT, SETTLES, Dispatch, Report
from amqpjobs.model.tracked_durations import duration, seconds
from amqpjobs.model.tracked_settings import policy_of
from amqpjobs.web.tracked import spliced, whole

QUEUED, CANCELLED = "queued", "cancelled"
STATUS = {State.SCHEDULED: QUEUED, State.BLOCKED: QUEUED, State.REPLACED: CANCELLED, State.RETRYING: "failed"}
"""States that have another name in Ocypod."""
_DURATIONS = ("timeout", "heartbeat_timeout", "expires_after")


class BadBody(ValueError):
    """The body is not what it should be: 400. The message says what is wrong."""


class TooLong(BadBody):
    """The body is larger than what is allowed: 413."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the body of a request may have {most} bytes (max_body_size)")


def parse(raw: bytes) -> Any:
    """A body as JSON. Raises BadBody."""
    try:
        return text.parse(raw)
    except text.NotJson as error:
        raise BadBody(f"the body is no JSON: {error}") from None


def read_object(raw: bytes) -> dict[str, Any]:
    """A body that is a JSON object. Raises BadBody."""
    value = parse(raw)
    if not isinstance(value, dict):
        raise BadBody("the body is to be a JSON object")
    return value


def read_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a body, in seconds; null counts as not given. Raises BadBody."""
    found: dict[str, Any] = {}
    try:
        for name in _DURATIONS:
            if value.get(name) is not None:
                found[name] = seconds(value[name])
        if value.get("retries") is not None:
            found["retries"] = whole(value["retries"])
        delays = value.get("retry_delays")
        if delays is not None:
            if not isinstance(delays, list):
                raise BadBody('retry_delays is a list of durations, such as ["10s", "1m"]')
            found["retry_delays"] = [seconds(each) for each in delays]
        policy_of(Policy(), found)
    except (TypeError, ValueError) as error:
        raise BadBody(str(error) or "retries is a number from 0 to 1000") from None
    return found


def read_dispatch(queue: str, raw: bytes) -> Dispatch:
    """The job that a body asks for. Raises BadBody."""
    value = read_object(raw)
    return Dispatch(
        queue, text.member(raw, "input") or b"null", tags=_tags(value.get("tags")), settings=read_settings(value),
        existing=True,
    )  # fmt: skip


def read_report(job: int, token: str | None, raw: bytes) -> Report:
    """What a body says of a job. Raises BadBody."""
    value = read_object(raw)
    status = value.get("status")
    if status is not None and status not in SETTLES:
        raise BadBody('status is one of "completed", "failed", "cancelled"')
    return Report(job, token, None if status is None else State(status), text.member(raw, "output"))


def _tags(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_TAGS or not all(map(is_tag, value)):
        raise BadBody(f"tags is a list of at most {MOST_TAGS} strings")
    return tuple(value)


def is_tag(value: object) -> bool:
    """Whether it may be a tag."""
    return isinstance(value, str) and 0 < len(value) <= MOST_TEXT and text.safe(value) == value


def is_queue(name: str) -> bool:
    """Whether it may be a queue's name."""
    return names.is_queue_name(name)


def shown_queue(policy: Policy) -> dict[str, Any]:
    """A queue's settings."""
    return {
        **{name: duration(getattr(policy, name)) for name in _DURATIONS},
        "retries": policy.retries,
        "retry_delays": [duration(each) for each in policy.retry_delays],
    }


def status_of(job: Tracked) -> str:
    """A job's status in Ocypod's words: what waits for its next try is still what it last was."""
    if job.state is State.RETRYING:
        return (job.outcome or State.FAILED).value
    return STATUS.get(job.state, job.state.value)


FIELDS: dict[str, Callable[[Tracked], Any]] = {
    "id": lambda job: job.id,
    "queue": lambda job: job.queue,
    "status": status_of,
    "tags": lambda job: list(job.tags) or None,
    "created_at": lambda job: moment(job.created_at),
    "started_at": lambda job: moment(job.started_at),
    "ended_at": lambda job: moment(job.ended_at),
    "last_heartbeat": lambda job: moment(job.beat_at),
    "input": lambda job: spliced(job.data),
    "output": lambda job: spliced(job.output),
    "timeout": lambda job: duration(job.policy.timeout),
    "heartbeat_timeout": lambda job: duration(job.policy.heartbeat_timeout),
    "expires_after": lambda job: duration(job.policy.expires_after),
    "retries": lambda job: job.policy.retries,
    "retries_attempted": lambda job: job.retried,
    "retry_delays": lambda job: [duration(each) for each in job.policy.retry_delays] or None,
    "ended": lambda job: job.ended,
}
"""The fields of a job, in the order that its clients see."""


def wanted_fields(given: str | None) -> list[str]:
    """The fields that a request asks for. Raises BadBody for one that there is none of."""
    if given is None:
        return list(FIELDS)
    wanted = [name.strip() for name in given.split(",")]
    unknown = [name for name in wanted if name not in FIELDS]
    if unknown:
        raise BadBody(f"no such field: {', '.join(map(repr, unknown))}; there are {', '.join(FIELDS)}")
    return wanted


def moment(at: float | None) -> str | None:
    """A time as ISO 8601 in UTC, with microseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
