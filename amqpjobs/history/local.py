"""Hours as days or months of a zone, added up in arrays: to join both takes DuckDB as long as to read the hours."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from amqpjobs.history.queries import FIGURES
from amqpjobs.history.store import Row

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


def added(hours: pa.Table, begins: Sequence[float]) -> tuple[list[Row], pa.Table]:
    """Of rows of `queries.HOURS` those that `queries.SERIES` has of days; and the same hours with their day as `key`.

    `begins`: when the days begin, in the order of time; no hour begins before the first of them.
    """
    import numpy as np  # noqa: PLC0415 - an extra

    day = np.searchsorted(begins, hours.column("at").to_numpy(), side="right") - 1
    numbers, of = np.unique(day, return_inverse=True)
    at = np.asarray(begins)[numbers]
    columns = [at.tolist()]
    for name, how in FIGURES.items():
        nothing = _NOTHING[how]
        total = np.full(len(at), nothing)
        reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum}[how]
        reduce.at(total, of, hours.column(name).fill_null(nothing).to_numpy())
        columns.append([None if how != "sum" and each == nothing else each for each in total.tolist()])
    return list(zip(*columns, strict=True)), hours.append_column("key", [at[of]])
