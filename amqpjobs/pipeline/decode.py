"""Messages of a stream as rows of a table: total, like all reading. What is no entry is a row that says why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from amqpjobs.model import fields, names, reading, text
from amqpjobs.model.fields import Problem
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.protocol import CONTROL_TYPES
from amqpjobs.model.tally import LAST_INSTANT, LONGEST_MS, source
from amqpjobs.model.unwrapped import joined
from amqpjobs.pipeline import runs
from amqpjobs.pipeline.fingerprint import fingerprint
from amqpjobs.pipeline.tables import BY_NAME, MESSAGES, rows_schema
from amqpjobs.streams.port import Incoming

Row = dict[str, Any]
Reader = Callable[[reading.Piece], list[Row]]
DAY = 86_400
FEW = 20
"""Messages for which columns do not pay."""
_NO_HEADERS = "{}"


def batch(rows: str, epoch: int, messages: Sequence[Incoming]) -> pa.RecordBatch:
    """The rows of some messages of one stream, in their order; `rows` names a raw table, or `messages`."""
    if rows == "messages":
        return _columns(MESSAGES, [_message(epoch, message) for message in messages])
    if BY_NAME[rows].stream == names.METRICS:
        return _runs(epoch, messages)
    return _one_by_one(rows, epoch, messages)


def _runs(epoch: int, messages: Sequence[Incoming]) -> pa.RecordBatch:
    """Runs by the column, or where something odd is among them, the halves: most of it is still quick."""
    if len(messages) < FEW:
        return _one_by_one("raw_metrics", epoch, messages)
    whole = runs.batch(epoch, messages)
    if whole is None:
        half = len(messages) // 2
        return pa.concat_batches([_runs(epoch, messages[:half]), _runs(epoch, messages[half:])])
    return whole


def _one_by_one(rows: str, epoch: int, messages: Sequence[Incoming]) -> pa.RecordBatch:
    reader, today = _READERS[BY_NAME[rows].stream], int(time.time() // DAY)
    found = [row for message in messages for row in _rows(reader, epoch, message)]
    for row in found:
        at = row.get("at")
        row["date"] = today if at is None else at // (DAY * 1_000_000)
    return _columns(rows_schema(rows), found)


def _columns(schema: pa.Schema, rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _message(epoch: int, message: Incoming) -> Row:
    headers = message.properties.headers
    written = text.dump(text.strict(dict(headers))).decode() if headers else _NO_HEADERS
    return {"epoch": epoch, "offset": message.offset, "body": message.body, "headers": written}


def _rows(reader: Reader, epoch: int, message: Incoming) -> Iterator[Row]:
    place = {"epoch": epoch, "offset": message.offset}
    if reader is _enqueued and reading.routed(message.exchange):
        yield {**place, "item": 0, **_routed(message)}
        return
    body = joined(message.body, message.properties.headers)
    pieces = reading.pieces(body)
    if isinstance(pieces, Unreadable):
        yield {**place, "item": 0, **_bad(pieces)}
        return
    sent = source([piece.value for piece in pieces[:1]])
    name, seq = (None, None) if sent is None else (_word(sent[0]), sent[1])
    for piece in pieces:
        for row in reader(piece):
            yield {**place, "item": piece.index, "source": name, "seq": seq, **row}


def _bad(found: Unreadable) -> Row:
    return {"bad": f"{found.error_class}: {found.error_message}", "body": found.raw}


def _run(piece: reading.Piece) -> list[Row]:
    value = piece.value
    if isinstance(value, dict) and value.get("type", "job_metric") != "job_metric":
        return []  # a marker of ours
    metric = reading.read_metric(value)
    if isinstance(metric, Unreadable):
        return [_bad(metric)]
    if not 0 <= metric.timestamp < LAST_INSTANT:
        return [{"bad": "Malformed: timestamp: not between 1970 and 10000", "body": piece.raw}]
    return [
        {
            "at": int(metric.timestamp * 1_000_000),
            "jid": metric.jid,
            "class": _word(metric.job_class),
            "queue": _word(metric.queue),
            "status": metric.status,
            "run_us": _micros(metric.duration_ms),
            "wait_us": _micros(metric.wait_ms),
            "attempt": None if metric.attempt is None else max(-(2**31), min(metric.attempt, 2**31 - 1)),
            "worker": _word(metric.worker_identity),
            "error_class": _word(metric.error_class),
            "code_version": _word(metric.code_version),
        }
    ]


def _delayed(read: Callable[..., Any], time_member: str) -> Reader:
    def rows(piece: reading.Piece) -> list[Row]:
        value = piece.value
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in CONTROL_TYPES:
            return _control(kind, value)
        entry = read(piece, jid="")
        if isinstance(entry, Unreadable):
            return [{**_bad(entry), "jid": entry.jid, "class": entry.cls, "queue": entry.queue}]
        return [_entry(entry, time_member)]

    return rows


def _entry(entry: Any, time_member: str) -> Row:
    job = entry.job
    error_class, message = getattr(entry, "error_class", None), getattr(entry, "error_message", None)
    at = getattr(entry, time_member)
    if time_member == "due":
        at = job.enqueued_at
    elif at is None:  # a failure happened: where its time was not told, it is that of our reading
        at = time.time()
    return {
        "type": {"due": "scheduled_job", "failed_at": "retry", "died_at": "dead_job"}[time_member],
        "at": _instant(at),
        "jid": entry.jid or None,
        "class": _word(job.cls) if job else None,
        "queue": _word(job.queue) if job else _word(getattr(entry, "queue", None)),
        "due": _instant(getattr(entry, "due", None)),
        "retry_count": getattr(entry, "retry_count", job.retry_count if job else None),
        "error_class": _word(error_class),
        "error_message": message,
        "fingerprint": None if message is None else fingerprint(error_class or "", message),
        "worker": _word(getattr(entry, "worker_identity", None)),
        "job": None if entry.job_raw is None else entry.job_raw.decode("utf-8", "replace"),
    }


def _control(kind: str, value: Mapping[str, Any]) -> list[Row]:
    """What became of jobs: one row a target. Terms, markers and the like say nothing of a job."""
    if kind not in ("claimed", "settled", "command"):
        return []
    targets = value.get("entries")
    how = value.get("how") if kind == "settled" else value.get("op")
    at = fields.instant_or_none(value.get("at"))
    shared = {"type": kind, "at": _instant(at), "how": how if isinstance(how, str) else None}
    return [{**shared, **_target(target)} for target in (targets if isinstance(targets, list) else [])]


def _target(target: Any) -> Row:
    if isinstance(target, dict):
        return {"jid": fields.name(target.get("jid")), "entry": fields.name(target.get("entry"))}
    return {"entry": fields.name(target)}


def _event(piece: reading.Piece) -> list[Row]:
    value = piece.value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return [{"bad": "Malformed: an event is an object with a type", "body": piece.raw}]
    at = fields.instant_or_none(value.get("at"))
    body = piece.raw.decode("utf-8", "replace")
    return [{"type": _word(value["type"]), "at": _instant(at), "jid": fields.name(value.get("jid")), "job": body}]


def _enqueued(piece: reading.Piece) -> list[Row]:
    value = piece.value
    if isinstance(value, dict) and value.get("type") == "marker":
        return []
    if not isinstance(value, dict) or value.get("type", "enqueued") != "enqueued":
        return [{"bad": "Malformed: no entry of the enqueue log", "body": piece.raw}]
    job, raw = value.get("job"), text.member(piece.raw, "job")
    told = {**job, **value} if isinstance(job, dict) else value
    return [
        {
            "type": "enqueued",
            "at": _instant(fields.instant_or_none(value.get("at"))),
            "jid": fields.name(told.get("jid")),
            "class": _word(fields.name(told.get("class"))),
            "queue": _word(fields.name(told.get("queue"))),
            "job": raw.decode("utf-8", "replace") if raw is not None and isinstance(job, dict) else None,
        }
    ]


def _routed(message: Incoming) -> Row:
    """A job as the broker routed it to its queue and to the log, read as the queue's worker reads it.

    So it is there once for each time that it was put on a queue: as a retry it was enqueued before.
    """
    job = reading.read_job(message.body, queue=message.routing_key, jid="", message_id=message.properties.message_id)
    if isinstance(job, Unreadable):
        return _bad(job)
    told = next((at for at in (job.enqueued_at, job.created_at) if at is not None), None)
    return {
        "type": "enqueued" if job.retry_count == 0 else "requeued",
        "at": _instant(time.time() if told is None else told),
        "jid": job.jid or None,
        "class": _word(job.cls),
        "queue": _word(message.routing_key),
        "job": job.raw.decode("utf-8", "replace"),
    }


def _beat(piece: reading.Piece) -> list[Row]:
    if isinstance(piece.value, dict) and piece.value.get("type", "heartbeat") != "heartbeat":
        return []
    beat = reading.read_heartbeat(piece.value)
    if isinstance(beat, Unreadable):
        return [_bad(beat)]
    return [
        {
            "at": _instant(beat.beat),
            "identity": beat.identity,
            "nonce": beat.nonce,
            "concurrency": _held(beat.concurrency),
            "busy": _held(beat.busy),
            "rss_kb": None if beat.rss_kb is None else max(0, min(beat.rss_kb, 2**40)),
            "version": _word(beat.version),
        }
    ]


def _held(value: int) -> int:
    return max(0, min(value, 1_000_000))


def _instant(at: float | Problem | None) -> int | None:
    """Microseconds since 1970; None for what is no time between 1970 and the year 10000."""
    if at is None or isinstance(at, Problem) or not 0 <= at < LAST_INSTANT:
        return None
    return int(at * 1_000_000)


def _micros(milliseconds: float | None) -> int | None:
    """Whole microseconds, held between 0 and 30 days; None when it was not told or is no number."""
    return None if milliseconds is None else int(min(max(milliseconds, 0.0), LONGEST_MS) * 1000)


def _word(words: str | None) -> str | None:
    """Text that every store takes, at most 255 characters of it."""
    if words is None or (len(words) < 256 and words.isascii()):
        return words
    safe = words.encode("utf-8", "replace").decode()
    return safe if len(safe) < 256 else safe[:254] + "…"


_READERS: Mapping[str, Reader] = {
    names.METRICS: _run,
    names.DEAD: _delayed(reading.read_dead, "died_at"),
    names.RETRIES: _delayed(reading.read_retry, "failed_at"),
    names.SCHEDULED: _delayed(reading.read_scheduled, "due"),
    names.EVENTS: _event,
    names.ENQUEUED: _enqueued,
    names.HEARTBEATS: _beat,
}
