"""The tables of the lake: what each holds, and of which stream (docs/pipeline.md has them in words)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from amqpjobs.model import names

INSTANT = pa.timestamp("us", tz="UTC")

_PLACE = [
    pa.field("epoch", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("item", pa.int32(), nullable=False),
    pa.field("source", pa.string()),
    pa.field("seq", pa.int64()),
]
_BAD = [pa.field("bad", pa.string()), pa.field("body", pa.binary()), pa.field("date", pa.date32(), nullable=False)]
"""Why a row is no entry, and its bytes then; the UTC day of `at`, or the day of reading where it tells no time."""

MESSAGES = pa.schema([*_PLACE[:2], pa.field("body", pa.binary()), pa.field("headers", pa.string())])
"""What the source gives when it is asked for no table: messages as they are, headers as a JSON object."""

FILES = pa.schema([pa.field("file", pa.string(), nullable=False)])
"""What the source gives when it wrote the rows itself: each file as `date=…/NAME`."""

RUNS = pa.schema(
    [
        *_PLACE,
        pa.field("at", INSTANT),
        pa.field("jid", pa.string()),
        pa.field("class", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("status", pa.string()),
        pa.field("run_us", pa.int64()),
        pa.field("wait_us", pa.int64()),
        pa.field("attempt", pa.int32()),
        pa.field("worker", pa.string()),
        pa.field("error_class", pa.string()),
        pa.field("code_version", pa.string()),
        *_BAD,
    ]
)

ENTRIES = pa.schema(
    [
        *_PLACE,
        pa.field("type", pa.string()),
        pa.field("at", INSTANT),
        pa.field("jid", pa.string()),
        pa.field("class", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("due", INSTANT),
        pa.field("retry_count", pa.int32()),
        pa.field("error_class", pa.string()),
        pa.field("error_message", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("worker", pa.string()),
        pa.field("entry", pa.string()),
        pa.field("how", pa.string()),
        pa.field("job", pa.string()),
        *_BAD,
    ]
)
"""Jobs that wait, and what became of them: one row an entry, of `settled`, `claimed` and `command` one row a target."""

EVENTS = pa.schema([*_PLACE, *[ENTRIES.field(name) for name in ("type", "at", "jid", "job")], *_BAD])
"""The life of tracked jobs; `job` is the whole entry."""

ENQUEUES = pa.schema(
    [*_PLACE, *[ENTRIES.field(name) for name in ("type", "at", "jid", "class", "queue", "job")], *_BAD]
)
"""Jobs that were put on a queue, where the enqueue log is on: of the type `requeued` those that are retried."""

BEATS = pa.schema(
    [
        *_PLACE,
        pa.field("at", INSTANT),
        pa.field("identity", pa.string()),
        pa.field("nonce", pa.string()),
        pa.field("concurrency", pa.int32()),
        pa.field("busy", pa.int32()),
        pa.field("rss_kb", pa.int64()),
        pa.field("version", pa.string()),
        *_BAD,
    ]
)

HISTOGRAM = pa.list_(pa.struct([("bucket", pa.int32()), ("n", pa.int64()), ("us", pa.int64())]))


def _sums(time: str, key: Sequence[str]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(time, INSTANT, nullable=False),
            *[pa.field(name, pa.string()) for name in key],
            *[pa.field(name, pa.int64()) for name in ("count", "failed", "retried")],
            *[pa.field(f"run_{name}", pa.int64()) for name in ("n", "us", "min_us", "max_us")],
            *[pa.field(f"wait_{name}", pa.int64()) for name in ("n", "us", "min_us", "max_us")],
            pa.field("run_histogram", HISTOGRAM),
            pa.field("wait_histogram", HISTOGRAM),
            pa.field("date", pa.date32(), nullable=False),
        ]
    )


def _errors(time: str, key: Sequence[str], *more: pa.Field) -> pa.Schema:
    return pa.schema(
        [
            pa.field(time, INSTANT, nullable=False),
            *[pa.field(name, pa.string()) for name in key],
            *[pa.field(name, pa.int64()) for name in ("count", "dead")],
            *more,
            *[pa.field(name, pa.string()) for name in ("jid", "error_message")],
            pa.field("date", pa.date32(), nullable=False),
        ]
    )


WORKER_HOURS = pa.schema(
    [
        pa.field("hour", INSTANT, nullable=False),
        pa.field("identity", pa.string()),
        pa.field("nonce", pa.string()),
        *[pa.field(name, pa.int64()) for name in ("beats", "busy", "concurrency", "rss_max_kb")],
        pa.field("date", pa.date32(), nullable=False),
    ]
)


JIDS = pa.schema(
    [
        pa.field("hash", pa.int64(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("date", pa.date32(), nullable=False),
    ]
)
"""On which days raw tables have something of a jid, by its hash. A file spans a month."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A table with a row for each entry of a stream. `keep`: whether it stays in the lake, or is only summed up."""

    name: str
    stream: str
    schema: pa.Schema
    keep: bool = True


RAW = (
    Raw("raw_metrics", names.METRICS, RUNS),
    Raw("raw_dead", names.DEAD, ENTRIES),
    Raw("raw_retries", names.RETRIES, ENTRIES),
    Raw("raw_scheduled", names.SCHEDULED, ENTRIES),
    Raw("raw_events", names.EVENTS, EVENTS),
    Raw("raw_enqueued", names.ENQUEUED, ENQUEUES),
    Raw("beats", names.HEARTBEATS, BEATS, keep=False),
)
BY_NAME = {table.name: table for table in RAW}


@dataclass(frozen=True, slots=True)
class Sums:
    """A table of sums: by `unit` of time and `key`. A file of it spans a `span` at most; `date` is its first day.

    Upkeep writes it in groups of so many `rows`: about what one key has in a file, as who asks for one key reads whole
    groups (`layout.groups`)."""

    unit: str
    key: tuple[str, ...]
    span: str
    rows: int = 1024


_CLASS = ("class", "queue", "code_version")
_ERROR = ("class", "queue", "error_class", "fingerprint")
ROLLUPS = {
    "metrics_minute": Sums("minute", _CLASS, "day"),
    "metrics_hour": Sums("hour", _CLASS, "month"),
    "metrics_day": Sums("day", _CLASS, "year", 256),
    "metrics_month": Sums("month", _CLASS, "year", 128),
    # Years of all classes together are asked for most: merging their histograms anew each time would take seconds.
    "totals_hour": Sums("hour", ("queue",), "month"),
    "totals_day": Sums("day", ("queue",), "year"),
    "totals_month": Sums("month", ("queue",), "year"),
}
ERRORS = {"errors_hour": Sums("hour", _ERROR, "month"), "errors_month": Sums("month", _ERROR, "year")}
WORKERS = {"heartbeats_hour": Sums("hour", ("identity", "nonce"), "month")}
SUMS = {**ROLLUPS, **ERRORS, **WORKERS}
SCHEMAS: dict[str, pa.Schema] = {
    **{table.name: table.schema for table in RAW if table.keep},
    **{name: _sums(each.unit, each.key) for name, each in ROLLUPS.items()},
    "errors_hour": _errors("hour", _ERROR),
    "errors_month": _errors("month", _ERROR, pa.field("last", INSTANT)),
    "heartbeats_hour": WORKER_HOURS,
    "jids": JIDS,
}


def rows_schema(rows: str) -> pa.Schema:
    """The schema of the source's rows: of a raw table by its name, or `messages`. Raises ValueError."""
    if rows == "messages":
        return MESSAGES
    if rows in BY_NAME:
        return BY_NAME[rows].schema
    raise ValueError(f"rows: {rows!r} is none of messages, {', '.join(BY_NAME)}")
