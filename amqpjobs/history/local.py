"""Hours added up to the days or months of a zone, in arrays: with histograms DuckDB takes several times as long."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from amqpjobs.history import groups
from amqpjobs.history.buckets import Bucket
from amqpjobs.history.pieces import Piece, dates
from amqpjobs.history.quantiles import Places, placed
from amqpjobs.history.queries import FIGURES, HOURS
from amqpjobs.history.store import Row, Store

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = {"sum": 0, "max": -1, "min": 2**63 - 1}
"""What stands for a figure that there is none of, while figures are added up."""


def edges(since: float, until: float, unit: str, zone: ZoneInfo) -> list[float]:
    """When the days (or months) of `zone` begin that hold something of a span."""
    at = datetime.datetime.fromtimestamp(since, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    found = []
    if unit == "month":
        at = at.replace(day=1)
    while (begins := at.timestamp()) < until:
        found.append(begins)
        at += datetime.timedelta(days=1)
        if unit == "month":
            at = (at + datetime.timedelta(days=30)).replace(day=1)
    return found


class _Buckets(NamedTuple):
    """What is in the buckets of days: a row a day, the first numbered `first`; a column a bucket, the first `low`."""

    first: int
    low: int
    counts: Any
    sums: Any


class _Hours(NamedTuple):
    """Hours of a file: the number of each one's day, and FIGURES. `buckets`: where they were asked for, and are any."""

    day: Any
    figures: pa.Table
    buckets: _Buckets | None


def added(
    store: Store, piece: Piece, where: Mapping[str, str], begins: Sequence[float], shares: Sequence[float]
) -> tuple[list[Row], Places]:
    """Of hours with the values of `where` the rows that `queries.SERIES` has of days; where shares of run times lie.

    `begins`: when the days begin, in the order of time; the piece begins in the first of them.
    """
    import numpy as np  # noqa: PLC0415 - an extra
    import pyarrow as pa  # noqa: PLC0415 - an extra

    columns = ["hour", *FIGURES, *(["run_histogram"] if shares else [])]
    taken = partial(_hours, piece=piece, begins=np.asarray(begins))
    if where or shares:
        parts = groups.each(store.files(piece.table, dates(piece)), where, columns, taken)
    else:  # a few numbers of every row: DuckDB's part
        scan = store.scan(piece.table, dates(piece))
        parts = [taken(store.arrow(HOURS.format(t=scan), []))] if scan else []
    if not parts:
        return [], {}
    days, of = np.unique(np.concatenate([part.day for part in parts]), return_inverse=True)
    at = np.asarray(begins)[days].tolist()
    figures = pa.concat_tables([part.figures for part in parts])
    totals = [_total(figures[name], of, how) for name, how in FIGURES.items()]
    return list(zip(at, *totals, strict=True)), _places(
        [part.buckets for part in parts if part.buckets], begins, shares
    )


def _hours(hours: pa.Table, piece: Piece, begins: Any) -> _Hours:
    import numpy as np  # noqa: PLC0415 - an extra

    at = hours.column("hour").to_numpy().astype("datetime64[s]").astype("int64")
    inside = (at >= piece.since) & (at < piece.until)
    if not inside.all():
        hours, at = hours.filter(inside), at[inside]
    day = np.searchsorted(begins, at, side="right") - 1
    return _Hours(day, hours.select(list(FIGURES)), _buckets(hours, day))


def _buckets(hours: pa.Table, day: Any) -> _Buckets | None:
    import numpy as np  # noqa: PLC0415 - an extra

    if "run_histogram" not in hours.column_names or not len(hours):
        return None
    column = hours.column("run_histogram")
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # a copy, which of one is in vain
    entries = lists.flatten()
    if not len(entries):
        return None
    bucket, n, us = (entries.field(name).to_numpy() for name in ("bucket", "n", "us"))
    first, low = int(day.min()), int(bucket.min())
    days, width = int(day.max()) - first + 1, int(bucket.max()) - low + 1
    cell = np.repeat((day - first) * width - low, np.diff(lists.offsets.to_numpy())) + bucket
    counts, sums = (np.bincount(cell, weights, days * width).reshape(days, width) for weights in (n, us))
    return _Buckets(first, low, counts, sums)


def _total(figures: pa.ChunkedArray, of: Any, how: str) -> list[int | None]:
    import numpy as np  # noqa: PLC0415 - an extra

    nothing = _NOTHING[how]
    total = np.full(int(of.max(initial=-1)) + 1, nothing)
    {"sum": np.add, "max": np.maximum, "min": np.minimum}[how].at(total, of, figures.fill_null(nothing).to_numpy())
    return [None if how != "sum" and each == nothing else each for each in total.tolist()]


def _places(parts: Sequence[_Buckets], begins: Sequence[float], shares: Sequence[float]) -> Places:
    import numpy as np  # noqa: PLC0415 - an extra

    low = min((part.low for part in parts), default=0)
    width = max((part.low - low + part.counts.shape[1] for part in parts), default=0)
    counts, sums = np.zeros((2, len(begins), width))
    for part in parts:
        days, width = part.counts.shape
        place = slice(part.first, part.first + days), slice(part.low - low, part.low - low + width)
        counts[place] += part.counts
        sums[place] += part.sums
    found = Places()
    for index, share, *rest in placed(counts, sums, low, shares):
        found.setdefault(begins[index], {})[share] = (Bucket(*rest[:3]), rest[3])
    return found
