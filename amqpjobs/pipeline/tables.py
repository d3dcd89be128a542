"""The tables of the lake: what each holds, and of which stream (docs/pipeline.md has them in words)."""

from __future__ import annotations

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

_HISTOGRAM = pa.list_(pa.struct([("bucket", pa.int32()), ("n", pa.int64()), ("us", pa.int64())]))


def _sums(time: str) -> pa.Schema:
    return pa.schema(
        [
            pa.field(time, INSTANT, nullable=False),
            pa.field("class", pa.string()),
            pa.field("queue", pa.string()),
            pa.field("code_version", pa.string()),
            *[pa.field(name, pa.int64()) for name in ("count", "failed", "retried")],
            *[pa.field(f"run_{name}", pa.int64()) for name in ("n", "us", "min_us", "max_us")],
            *[pa.field(f"wait_{name}", pa.int64()) for name in ("n", "us", "min_us", "max_us")],
            pa.field("run_histogram", _HISTOGRAM),
            pa.field("wait_histogram", _HISTOGRAM),
            pa.field("date", pa.date32(), nullable=False),
        ]
    )


ERRORS = pa.schema(
    [
        pa.field("hour", INSTANT, nullable=False),
        *[pa.field(name, pa.string()) for name in ("class", "queue", "error_class", "fingerprint")],
        pa.field("count", pa.int64()),
        pa.field("dead", pa.int64()),
        pa.field("jid", pa.string()),
        pa.field("error_message", pa.string()),
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
    Raw("beats", names.HEARTBEATS, BEATS, keep=False),
)
BY_NAME = {table.name: table for table in RAW}
ROLLUPS = {"metrics_minute": _sums("minute"), "metrics_hour": _sums("hour"), "metrics_day": _sums("day")}
SUMS = {**ROLLUPS, "errors_hour": ERRORS, "heartbeats_hour": WORKER_HOURS}
SPANS = {
    "metrics_minute": "day",
    "metrics_hour": "month",
    "metrics_day": "year",
    "errors_hour": "month",
    "heartbeats_hour": "month",
}
"""What a file of a table of sums spans at most: `date` is its first day. A year of days in 365 files would be slow."""
SCHEMAS: dict[str, pa.Schema] = {**{table.name: table.schema for table in RAW if table.keep}, **SUMS}


def rows_schema(rows: str) -> pa.Schema:
    """The schema of the source's rows: of a raw table by its name, or `messages`. Raises ValueError."""
    if rows == "messages":
        return MESSAGES
    if rows in BY_NAME:
        return BY_NAME[rows].schema
    raise ValueError(f"rows: {rows!r} is none of messages, {', '.join(BY_NAME)}")
