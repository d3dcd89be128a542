"""Runs of `job_metrics` as columns: what workers of ours append, ten times as quick as entry by entry.

It takes only messages all of whose entries are as `decode` would read them without a second thought; the rest is its.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from amqpjobs.model import names, text
from amqpjobs.model.reports import STATUSES
from amqpjobs.model.tally import LONGEST_MS, source
from amqpjobs.model.unwrapped import TYPE
from amqpjobs.pipeline.tables import INSTANT, RUNS
from amqpjobs.streams.port import Incoming

_DAY_US = 86_400_000_000
_LATEST = 9e9
"""Seconds since 1970 whose microseconds a float tells exactly; what is later is looked at by `decode`."""
_LONGEST_WORD = 255
_KIND = "job_metric"


def batch(epoch: int, messages: Sequence[Incoming]) -> pa.RecordBatch | None:
    """The rows of these messages, in their order; None when one of them is not plain."""
    found = [None if TYPE in each.properties.headers else text.flat(each.body) for each in messages]
    told = [each for each in found if each is not None]
    if len(told) < len(found):
        return None
    entries = [entry for each in told for entry in each]
    try:
        columns = _place(epoch, messages, told) | _figures(entries) | _words(entries)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, _Odd):
        return None  # a member is of another type than ours, or an integer that no column holds
    nothing = {name: pa.nulls(len(entries), RUNS.field(name).type) for name in ("bad", "body")}
    return pa.RecordBatch.from_pydict(columns | nothing, schema=RUNS)


class _Odd(Exception):
    """A value that only `decode` knows to read."""


def _place(epoch: int, messages: Sequence[Incoming], told: Sequence[list[dict[str, Any]]]) -> dict[str, pa.Array]:
    """Where each entry stands, and who appended its message."""
    message = pa.array([number for number, each in enumerate(told) for _ in each], pa.int32())
    sources = [source(each[:1]) or (None, None) for each in told]
    name = _word(pa.array([each[0] for each in sources], pa.string()))
    seq = pa.array([each[1] for each in sources], pa.int64())
    return {
        "epoch": pa.repeat(pa.scalar(epoch, pa.int32()), len(message)),
        "offset": pa.array([each.offset for each in messages], pa.int64()).take(message),
        "item": pa.array([item for each in told for item in range(len(each))], pa.int32()),
        "source": name.take(message),
        "seq": seq.take(message),
    }


def _figures(entries: Sequence[dict[str, Any]]) -> dict[str, pa.Array]:
    times = _numbers(entries, "timestamp", pa.float64())
    _all(pc.and_(pc.greater_equal(times, 0.0), pc.less(times, _LATEST)))
    micros = pc.multiply(times, 1e6).cast(pa.int64(), safe=False)
    attempts = _numbers(entries, "attempt", pa.int64())
    _all(pc.and_(pc.greater_equal(attempts, 0), pc.less(attempts, 2**31)), nulls=True)
    return {
        "at": micros.cast(INSTANT),
        "run_us": _micros(_numbers(entries, "duration_ms", pa.float64())),
        "wait_us": _micros(_numbers(entries, "wait_ms", pa.float64())),
        "attempt": attempts.cast(pa.int32()),
        "date": pc.divide(micros, _DAY_US).cast(pa.int32()).cast(pa.date32()),
    }


def _words(entries: Sequence[dict[str, Any]]) -> dict[str, pa.Array]:
    kinds = pa.array([entry.get("type", _KIND) for entry in entries], pa.string())
    _all(pc.equal(kinds, _KIND))
    cls, status, queue, worker = (
        _strings(entries, name) for name in ("job_class", "status", "queue", "worker_identity")
    )
    _all(pc.not_equal(cls, ""))
    _all(pc.is_in(status, pa.array(STATUSES)))
    jid = _strings(entries, "jid")
    return {
        "jid": pc.if_else(pc.equal(jid, ""), None, jid),
        "class": _word(cls),
        "queue": _word(pc.coalesce(pc.if_else(pc.equal(queue, ""), None, queue), names.DEFAULT_QUEUE)),
        "status": status,
        "worker": _word(pc.coalesce(worker, "")),
        "error_class": _word(_strings(entries, "error_class")),
        "code_version": _word(_strings(entries, "code_version")),
    }


def _strings(entries: Sequence[dict[str, Any]], name: str) -> pa.Array:
    return pa.array([entry.get(name) for entry in entries], pa.string())


def _numbers(entries: Sequence[dict[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    values = [entry.get(name) for entry in entries]
    if bool in set(map(type, values)):
        raise _Odd  # Arrow takes it for a float
    return pa.array(values, kind)


def _micros(milliseconds: pa.Array) -> pa.Array:
    """Whole microseconds, held between 0 and the longest duration."""
    _all(pc.is_finite(milliseconds), nulls=True)
    least = pc.max_element_wise(milliseconds, 0.0, skip_nulls=False)
    held = pc.min_element_wise(least, LONGEST_MS, skip_nulls=False)
    return pc.multiply(held, 1000.0).cast(pa.int64(), safe=False)


def _word(words: pa.Array) -> pa.Array:
    _all(pc.less_equal(pc.utf8_length(words), _LONGEST_WORD), nulls=True)
    return words


def _all(told: pa.Array, *, nulls: bool = False) -> None:
    """Raises _Odd unless all are true, or, where that is allowed, null."""
    if (not nulls and told.null_count) or pc.all(told).as_py() is False:
        raise _Odd
