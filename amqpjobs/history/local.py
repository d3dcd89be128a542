"""Hours added up to the days or months of a zone, in arrays: with histograms DuckDB takes several times as long."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from amqpjobs.history import groups
from amqpjobs.history.buckets import NONE, Bucket
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


class _Hours(NamedTuple):
    """Hours of a file: the number of each one's day, FIGURES; and of each day a row of buckets, counts and sums."""

    day: Any
    figures: dict[str, Any]
    first: int
    """The number of the first day that has such a row."""
    counts: Any
    sums: Any


def added(
    store: Store, piece: Piece, where: Mapping[str, str], begins: Sequence[float], shares: Sequence[float]
) -> tuple[list[Row], Places]:
    """Of hours with the values of `where` the rows that `queries.SERIES` has of days; where shares of run times lie.

    `begins`: when the days begin, in the order of time; the piece begins in the first of them.
    """
    import numpy as np  # noqa: PLC0415 - an extra

    columns = ["hour", *FIGURES, *(["run_histogram"] if shares else [])]
    taken = partial(_hours, piece=piece, begins=begins)
    if where or shares:
        parts = groups.each(store.files(piece.table, dates(piece)), where, columns, taken)
    else:  # a few numbers of every row: DuckDB's part
        scan = store.scan(piece.table, dates(piece))
        parts = [taken(store.arrow(HOURS.format(t=scan), []))] if scan else []
    if not parts:
        return [], {}
    days, of = np.unique(np.concatenate([part.day for part in parts]), return_inverse=True)
    at = np.asarray(begins)[days].tolist()
    figures = [_total(np.concatenate([part.figures[name] for part in parts]), of, how) for name, how in FIGURES.items()]
    return list(zip(at, *figures, strict=True)), _places(parts, begins, shares)


def _hours(hours: pa.Table, piece: Piece, begins: Sequence[float]) -> _Hours:
    import numpy as np  # noqa: PLC0415 - an extra

    at = hours.column("hour").to_numpy().astype("datetime64[s]").astype("int64")
    inside = (at >= piece.since) & (at < piece.until)
    if not inside.all():
        hours, at = hours.filter(inside), at[inside]
    day = np.searchsorted(begins, at, side="right") - 1
    first = int(day.min(initial=len(begins)))
    figures = {name: hours.column(name).fill_null(_NOTHING[how]).to_numpy() for name, how in FIGURES.items()}
    return _Hours(day, figures, first, *_buckets(hours, day - first))


def _buckets(hours: pa.Table, day: Any) -> tuple[Any, Any]:
    """Of each day a row of what is in its buckets, from NONE on: counts, and sums."""
    import numpy as np  # noqa: PLC0415 - an extra

    days = int(day.max(initial=-1)) + 1
    if "run_histogram" not in hours.column_names:
        return np.zeros((days, 0)), np.zeros((days, 0))
    lists = hours.column("run_histogram").combine_chunks()
    bucket, n, us = (lists.flatten().field(name).to_numpy() for name in ("bucket", "n", "us"))
    width = int(bucket.max(initial=NONE)) - NONE + 1
    cell = np.repeat((day * width - NONE).astype("int32"), np.diff(lists.offsets.to_numpy())) + bucket
    counts, sums = (np.bincount(cell, weights, days * width).reshape(days, width) for weights in (n, us))
    return counts, sums


def _total(figures: Any, of: Any, how: str) -> list[int | None]:
    import numpy as np  # noqa: PLC0415 - an extra

    nothing = _NOTHING[how]
    total = np.full(int(of.max(initial=-1)) + 1, nothing)
    {"sum": np.add, "max": np.maximum, "min": np.minimum}[how].at(total, of, figures)
    return [None if how != "sum" and each == nothing else each for each in total.tolist()]


def _places(parts: Sequence[_Hours], begins: Sequence[float], shares: Sequence[float]) -> Places:
    import numpy as np  # noqa: PLC0415 - an extra

    counts, sums = np.zeros((2, len(begins), max(part.counts.shape[1] for part in parts)))
    for part in parts:
        days, width = part.counts.shape
        counts[part.first : part.first + days, :width] += part.counts
        sums[part.first : part.first + days, :width] += part.sums
    found = Places()
    for index, share, *place in placed(counts, sums, shares):
        found.setdefault(begins[index], {})[share] = (Bucket(*place[:3]), place[3])
    return found
