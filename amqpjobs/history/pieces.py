"""A span of time cut into whole months, days, hours and minutes: of each the table that has it in the fewest rows."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Literal, NamedTuple

from amqpjobs.history import queries
from amqpjobs.history.store import Span, Store, span

Unit = Literal["minute", "hour", "day", "month"]
Kind = Literal["metrics", "totals", "errors"]
"""`totals` are of all classes together."""
_UNITS: dict[Kind, tuple[Unit, ...]] = {
    "metrics": ("month", "day", "hour"),
    "totals": ("month", "day", "hour"),
    "errors": ("month", "hour"),
}
HOUR = 3600
DAY = 24 * HOUR
BY_MINUTE = 2 * DAY
"""Spans up to this are cut at minutes; of longer ones the hours that begin in them count. Minutes are not kept long."""
_SPANNED: dict[str, int] = {
    "metrics_minute": 0,
    "metrics_hour": 31,
    "metrics_day": 366,
    "metrics_month": 366,
    "totals_hour": 31,
    "totals_day": 366,
    "totals_month": 366,
    "errors_hour": 31,
    "errors_month": 366,
}
"""Days that a file of a table may begin before a time that it holds."""
LASTING = tuple(table for table in _SPANNED if not table.endswith("_minute"))
"""Tables of sums of all years."""

_MORE = {"errors_hour": ", hour AS last"} | dict.fromkeys(
    ("totals_hour", "totals_day", "totals_month"), ", NULL::VARCHAR AS class"
)
"""Columns that a table lacks beside others of its kind."""


class Piece(NamedTuple):
    """Rows of a table whose `unit` begins from `since` to before `until`."""

    table: str
    unit: Unit
    since: float
    until: float


def cut(kind: Kind, since: float, until: float, *, days: bool = False, newest: float | None = None) -> list[Piece]:
    """The pieces that are the span, by the coarsest tables. `days`: of a long one the days that begin in it.

    `newest`: the last hour that the tables have. A span beyond it is taken to the month's end, for months read quickly.
    """
    if kind != "errors" and until - since <= BY_MINUTE and (since % HOUR or until % HOUR):
        return [Piece("metrics_minute", "minute", since, until)]
    units = _UNITS[kind]
    end = until if newest is None or newest >= until else _ceiling("month", until)
    return _cut(kind, units[:-1] if days and until - since > BY_MINUTE else units, since, end)


def _cut(kind: Kind, units: Sequence[Unit], since: float, until: float) -> list[Piece]:
    if since >= until:
        return []
    unit, *finer = units
    if not finer:
        return [Piece(f"{kind}_{unit}", unit, since, until)]
    last = _floor(unit, until)
    first = _ceiling(unit, since)
    if first >= last:
        return _cut(kind, finer, since, until)
    edges = (_cut(kind, finer, since, first), _cut(kind, finer, last, until))
    return [*edges[0], Piece(f"{kind}_{unit}", unit, first, last), *edges[1]]


def _floor(unit: Unit, at: float) -> float:
    """When the unit began that holds `at`."""
    if unit == "month":
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
        return datetime.datetime(moment.year, moment.month, 1, tzinfo=datetime.UTC).timestamp()
    return at // DAY * DAY


def _ceiling(unit: Unit, at: float) -> float:
    """When the first unit begins that begins at `at` or later."""
    begun = _floor(unit, at)
    return begun if begun == at else _floor(unit, begun + (32 * DAY if unit == "month" else DAY))


def dates(piece: Piece) -> Span:
    """Of which dates files may hold something of a piece."""
    return span(piece.since, piece.until, _SPANNED[piece.table])


def source(store: Store, pieces: Sequence[Piece]) -> str | None:
    """The pieces as one table for SQL, whose `begins` is the beginning of the unit; None where no file has any."""
    found = []
    for piece in pieces:
        scan = store.scan(piece.table, dates(piece))
        if scan is not None:
            found.append(queries.piece(scan, piece.unit, piece.since, piece.until, _MORE.get(piece.table, "")))
    return f"({' UNION ALL BY NAME '.join(found)})" if found else None
