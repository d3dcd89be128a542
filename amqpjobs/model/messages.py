"""What travels: jobs, the entries of the streams, and what could not be read.

These are results of `amqpjobs.model.reading`, which checks every value; they are built with `trusted`, without
checking it twice. All times are seconds since 1970-01-01 UTC, all durations seconds unless the name says otherwise.
All text is safe to encode as UTF-8, except inside `args` and `meta`, which are exactly what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

MAX_RETRIES = 1000
DEFAULT_RETRIES = 25


class Message(BaseModel):
    """The base of them all."""

    # A worker reads millions of jobs with `trusted` and validates none: without this it would build validators at its
    # start for as long as connecting takes.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def trusted(cls, values: dict[str, Any]) -> Self:
        """An instance with exactly these values: every field must be there and checked.

        pydantic's `model_construct` does the same for ten times the price of reading the whole job.
        """
        message = _new(cls)
        _put_values(message, values)
        _put_set(message, set())
        _put_extra(message, None)
        _put_private(message, None)
        return message


# The members that pydantic keeps beside the values, by their own descriptors: `object.__setattr__` looks each up anew.
_new = object.__new__
_put_values = BaseModel.__dict__["__dict__"].__set__
_put_set = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_put_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_put_private = BaseModel.__dict__["__pydantic_private__"].__set__


class Job(Message):
    """One job. `raw` is the JSON object as it came, unknown members and all; it is what travels on."""

    jid: str
    cls: str = Field(validation_alias=AliasChoices("class", "cls"), serialization_alias="class")
    args: list[Any] | dict[str, Any] = Field(default_factory=list)
    queue: str = "default"
    retry: int = Field(default=DEFAULT_RETRIES, ge=0, le=MAX_RETRIES)
    """How often it is tried again: N retries are N + 1 runs."""
    retry_count: int = Field(default=0, ge=0, le=MAX_RETRIES)
    enqueued_at: float | None = None
    """When it last entered its queue."""
    backtrace: int | bool | None = None
    """How many lines of a backtrace a failure keeps: None or True all, False or 0 none."""
    tags: list[str] = Field(default_factory=list)
    priority: int | None = Field(default=None, ge=0, le=10)
    timeout: float | None = None
    retry_delays: list[float] | None = None
    min_backoff: float | None = None
    max_backoff: float | None = None
    expires_in: float | None = None
    dead: bool = True
    """False: what fails for good is discarded (and counted as failed), not kept."""
    track: bool = False
    key: str | None = None
    meta: dict[str, Any] | None = None
    created_at: float | None = None
    """When it was first sent."""
    stall_count: int = 0
    raw: bytes = Field(default=b"{}", repr=False, exclude=True)
    complete: bool = Field(default=False, repr=False, exclude=True)
    """Whether `raw` itself names this jid and this queue; else they came from elsewhere and must be written in."""


class ScheduledJob(Message):
    """An entry of `scheduled_jobs`: a job that waits for its time."""

    jid: str
    due: float
    reschedule: bool = False
    """Whether it replaces the entries of this jid that still wait."""
    job: Job
    job_raw: bytes = Field(repr=False, exclude=True)
    raw: bytes = Field(repr=False, exclude=True)
    properties: dict[str, Any] = Field(default_factory=dict)
    """AMQP properties for the release: `priority`, `correlation_id`, `headers` (scalars), each if there is one."""


class RetryEntry(Message):
    """An entry of `retries`: a job that failed and runs again at `due` (its `retry_at`)."""

    jid: str
    due: float
    retry_count: int
    """Which retry this will be, from 1: what the job's `retry_count` becomes when it is released."""
    failed_at: float | None
    error_message: str
    error_class: str
    backtrace: str | None
    attempt: int | None
    """Which run failed, from 1."""
    worker_identity: str | None
    job: Job
    job_raw: bytes = Field(repr=False, exclude=True)
    raw: bytes = Field(repr=False, exclude=True)
    properties: dict[str, Any] = Field(default_factory=dict)


class DeadJob(Message):
    """An entry of `dead_jobs`: a job that will not run unless a person says so, or bytes that are no job."""

    jid: str
    died_at: float
    failed_at: float | None
    retry_count: int
    error_message: str
    error_class: str
    backtrace: str | None
    worker_identity: str | None = None
    job: Job | None
    job_raw: bytes | None = Field(repr=False, exclude=True)
    raw: bytes = Field(repr=False, exclude=True)
    properties: dict[str, Any] = Field(default_factory=dict)
    original: bytes | None = Field(default=None, repr=False, exclude=True)
    """The bytes that could not be read as a job."""
    queue: str | None = None
    origin: str | None = None
    """The entry ("stream/entry") that the leader buried: a burial repeated after a crash is the same record."""


class RunningJob(Message):
    """A job that a process works on."""

    jid: str
    cls: str = Field(validation_alias=AliasChoices("class", "cls"), serialization_alias="class")
    queue: str
    started_at: float | None


class Heartbeat(Message):
    """A sign of life of a worker process. `identity` is `hostname:pid:tag`; with `nonce` it names one process."""

    identity: str
    nonce: str | None
    hostname: str
    pid: int | None
    tag: str
    concurrency: int
    busy: int
    beat: float | None
    """By the sender's clock; whether it is fresh is judged by when it arrived."""
    boot_at: float | None
    rss_kb: int | None
    queues: list[str]
    version: str
    state: str
    """`running`, `quiet`, `stopping`, or `stopped`: the goodbye of a process that ended properly."""
    running: list[RunningJob]


class JobMetric(Message):
    """One run of a job, however it ended."""

    timestamp: float
    """When it ended."""
    job_class: str
    queue: str
    duration_ms: float | None
    """None when the sender's figure was no finite number."""
    status: Literal["success", "failed", "expired", "cancelled"]
    worker_identity: str
    jid: str | None
    attempt: int | None
    """Which run of the job, from 1."""
    wait_ms: float | None
    error_class: str | None
    code_version: str | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What cannot be what it should be. It becomes a dead record that keeps `raw` (see `outcomes.unreadable`)."""

    error_class: str
    error_message: str
    raw: bytes
    jid: str | None = None
    queue: str | None = None
    cls: str | None = None
