"""Settings: environment variables `AMQPJOBS_*` over `amqpjobs.toml` in the working directory over defaults."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Container
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from amqpjobs.addresses import redact as redact  # noqa: PLC0414 - asked for here by all who show `url`
from amqpjobs.model import names

_AGE = r"^[1-9][0-9]*[YMDhms]$"


class StreamLimits(BaseModel):
    """How long and how much a stream keeps. `max_age` is the broker's notation: `N[YMDhms]`."""

    model_config = ConfigDict(extra="forbid")

    max_age: str = Field(pattern=_AGE)
    max_bytes: int = Field(ge=4096)
    segment_bytes: int = Field(default=64_000_000, ge=1024)


_GB = 1_000_000_000
_SMALL = 1_000_000

DEFAULT_LIMITS: dict[str, StreamLimits] = {
    names.SCHEDULED: StreamLimits(max_age="30D", max_bytes=100 * _GB),
    names.RETRIES: StreamLimits(max_age="30D", max_bytes=20 * _GB),
    names.DEAD: StreamLimits(max_age="180D", max_bytes=10 * _GB),
    names.HEARTBEATS: StreamLimits(max_age="5m", max_bytes=100 * _SMALL, segment_bytes=_SMALL),
    names.METRICS: StreamLimits(max_age="1825D", max_bytes=100 * _GB, segment_bytes=500_000_000),
    names.EVENTS: StreamLimits(max_age="30D", max_bytes=20 * _GB),
    names.CONTROLS: StreamLimits(max_age="1D", max_bytes=100 * _SMALL, segment_bytes=_SMALL),
    names.CHECKPOINTS: StreamLimits(max_age="1D", max_bytes=_GB, segment_bytes=_SMALL),
    names.AUDIT: StreamLimits(max_age="1825D", max_bytes=10 * _GB),
    names.ENQUEUED: StreamLimits(max_age="30D", max_bytes=20 * _GB),
}


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "amqpjobs"


PREFIX = "AMQPJOBS_"
FILE = Path("amqpjobs.toml")


class Unreadable(Exception):
    """The file of settings is no TOML."""


Words = Annotated[list[str], BeforeValidator(lambda value: value.split() if isinstance(value, str) else value)]
"""A list: in the environment its items are separated by spaces."""


class Settings(BaseModel):
    """What every process of ours reads at its start. Nested values: `AMQPJOBS_STREAMS__RETRIES__MAX_AGE=…`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)  # it may be a password

    url: str = Field(default="amqp://guest:guest@127.0.0.1:5672/", repr=False)
    """The broker; several, separated by spaces or commas, are tried in this order at each connect."""
    stream_url: str | None = Field(default=None, repr=False)
    management_url: str | None = Field(default=None, repr=False)
    """The broker's HTTP API; not given, it is looked for on its usual port at the broker's host."""
    ca_file: Path | None = None
    """PEM file of the authorities that `amqps:` and `https:` trust, in place of the system's."""
    cert_file: Path | None = None
    """PEM file of our own certificate, where the broker asks for one, and `key_file` of its key if that is apart."""
    key_file: Path | None = None
    state_dir: Path = Field(default_factory=_state_dir)
    driver: Literal["lean", "aiormq"] = "lean"
    """What speaks AMQP: our own lean driver, or the one of aio-pika."""
    heartbeat: int = Field(default=10, ge=1, le=3600)
    """AMQP heartbeat in seconds: a half-open connection is noticed after three."""
    queue_type: Literal["classic", "quorum"] = "classic"
    """How job queues that do not exist yet are declared on RabbitMQ: `quorum` replicates them in a cluster."""
    max_priority: int = Field(default=names.MAX_PRIORITY, ge=0, le=names.MAX_PRIORITY)
    """The highest priority of classic job queues that do not exist yet; what is higher counts as this. 0: none.

    A broker keeps a queue within the queue for each priority and looks through all of them at every step.
    """
    max_message_bytes: int | None = Field(default=None, ge=65_536)
    """The largest message in bytes that we send, where the broker is configured to take less than it usually does."""
    publish_timeout: float = Field(default=10.0, gt=0)
    """Seconds a client waits for a confirm, the broker's absence included."""
    metrics_window: float = Field(default=72 * 3600.0, gt=0)
    """Seconds of metrics that a dashboard reads back when it starts without a view of its own."""
    web_token: SecretStr | None = None
    """What visitors of the dashboard must show; without it, it is served on loopback only."""
    web_view_token: SecretStr | None = None
    """A second token, which only lets its bearer look."""
    web_user_header: str = Field(default="", pattern=r"^[A-Za-z0-9-]*$")
    """The header in which a proxy that people log in at says who it is, such as `X-Forwarded-User`."""
    web_proxies: Words = Field(default_factory=lambda: ["127.0.0.0/8", "::1/128"])
    """Addresses and networks of such proxies: from anywhere else the header counts for nothing."""
    web_root_path: str = Field(default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """The path of the site that the dashboard is served at, behind a proxy: `/jobs`."""
    web_read_only: bool = False
    """Whether the dashboard only shows: it refuses every action."""
    dead_max: int = Field(default=10_000, ge=0)
    """Dead jobs that are kept; the leader drops the oldest of more."""
    dead_max_age: str = Field(default="180D", pattern=_AGE)
    """How long a dead job is kept after it arrived, in the notation of the streams' limits."""
    streams: dict[str, dict[str, str | int]] = Field(default_factory=dict)
    """Overrides of the streams' limits, by stream."""
    recurring: Path | None = None
    """A TOML file of recurring jobs that the scheduler declares when it comes to lead."""
    ocypod: Path | None = None
    """Ocypod's TOML, for a dashboard that serves its clients."""
    tag: str = "production"
    """The third part of a process's identity, `hostname:pid:tag`."""
    apps: Words = Field(default_factory=list)
    """Modules of `@job` functions that a worker loads when its command line names none."""
    queues: Words = Field(default_factory=lambda: [names.DEFAULT_QUEUE])
    """Queues that a worker serves when its command line names none, each `name` or `name,weight`."""
    concurrency: int = Field(default=10, ge=1)
    """Jobs that a worker runs at a time."""
    stop_timeout: float = Field(default=25.0, ge=0)
    """Seconds that running jobs get when their worker is told to stop."""
    enqueue_log: bool | Literal["bound"] = False
    """Whether jobs that are put on a queue are put on record in the stream `enqueued`. true: our clients append those
    of their own, once they are there. "bound": the broker routes a copy of each job there, whoever sent it."""
    code_version: str | None = None
    """The version of your code, kept with each run."""

    lake_dir: Path = Path("lake")
    """Where the pipeline keeps its Delta tables: a folder that all of its processes share."""
    lake_raw_age: str = Field(default="5Y", pattern=_AGE)
    """How long the lake keeps each entry, in the notation of the streams' limits; hours and days are kept for ever."""
    lake_minutes_age: str = Field(default="30D", pattern=_AGE)
    """How long the lake keeps sums by the minute."""
    spark_master: str = "local[2,3]"
    """Where the pipeline's Spark runs: in its own process (two threads, three tries a task), or a cluster's address."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments, then the environment, then the file."""
        return {**_over(_over(_in_file(), _in_environment(cls.model_fields)), given)}

    def limits(self, stream: str) -> StreamLimits:
        """The limits of one stream: the defaults with this setting's overrides."""
        overrides = self.streams.get(stream, {})
        return StreamLimits.model_validate(DEFAULT_LIMITS[stream].model_dump() | overrides)

    @field_validator("web_proxies")
    @classmethod
    def _check_proxies(cls, given: list[str]) -> list[str]:
        for each in given:
            ip_network(each, strict=False)  # a ValueError that says what is wrong with it
        return given

    @model_validator(mode="after")
    def _check_streams(self) -> Settings:
        """A limit of a stream that does not exist, or that the broker would not take, is an error at the start."""
        unknown = sorted(set(self.streams) - set(DEFAULT_LIMITS))
        if unknown:
            raise ValueError(f"no such stream: {', '.join(unknown)}; there are {', '.join(DEFAULT_LIMITS)}")
        for stream in self.streams:
            try:
                self.limits(stream)
            except ValidationError as error:
                first = error.errors()[0]
                raise ValueError(f"{stream}.{first['loc'][0]}: {first['msg']}") from None
        return self


def _in_file() -> dict[str, Any]:
    if not FILE.is_file():
        return {}
    try:
        return tomllib.loads(FILE.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unreadable(f"{FILE}: {error}") from None


def _in_environment(fields: Container[str]) -> dict[str, Any]:
    """`AMQPJOBS_NAME=…`; `streams` is one JSON object, or `AMQPJOBS_STREAMS__RETRIES__MAX_AGE=…` for each limit.

    Capitals do not matter. Names that are no setting are somebody else's.
    """
    found: dict[str, Any] = {}
    ours = ((name[len(PREFIX) :].lower(), value) for name, value in os.environ.items() if name.upper()[:9] == PREFIX)
    for name, text in sorted(ours, key=lambda one: one[0].count("__")):  # what is nested goes over the whole
        field, *path = name.split("__")
        if field not in fields or (path and field != "streams"):
            continue
        value: Any = _json(text) if field == "streams" and not path else text
        for part in reversed(path):
            value = {part: value}
        found[field] = _over(found.get(field), value)
    return found


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value  # and the check of the field says that it is no object


def _over(low: Any, high: Any) -> Any:
    """`high`, with what only `low` has: of tables, member by member."""
    if not isinstance(low, dict) or not isinstance(high, dict):
        return high
    return low | {name: _over(low.get(name), value) for name, value in high.items()}


_UNITS = {"Y": 365 * 86400.0, "M": 30 * 86400.0, "D": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def age_seconds(max_age: str) -> float:
    """Seconds of a broker age such as `30D` (a month is 30 days, a year 365, as RabbitMQ counts)."""
    return int(max_age[:-1]) * _UNITS[max_age[-1]]


def load() -> Settings:
    """The settings of this process; exits with 2 and a line for each value that cannot be read."""
    try:
        return Settings()
    except ValidationError as error:
        for problem in error.errors():
            name = "__".join(str(part) for part in problem["loc"]) or "streams"
            # the value itself stays out: it may be a password
            sys.stderr.write(f"AMQPJOBS_{name.upper()} (or {name} in amqpjobs.toml): {problem['msg']}\n")
        raise SystemExit(2) from None
    except Unreadable as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
