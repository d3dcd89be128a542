"""Rows with certain values, straight from the row groups that may have them, file by file.

Of years of histograms DuckDB takes several times the CPU: it looks at all groups of all files, and lays all rows beside
each other in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_THREADS = 2
_FOOTERS = 200
"""Files whose footers are kept, a megabyte each of large ones; there is a large one a month."""


def each(
    files: Sequence[str], where: Mapping[str, str], columns: Sequence[str], then: Callable[[pa.Table], T]
) -> list[T]:
    """Of each file what `then` makes of its rows with the values of `where`, in these columns. Two threads do it."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: then(_rows(file, where, columns)), files))


def _rows(file: str, where: Mapping[str, str], columns: Sequence[str]) -> pa.Table:
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    metadata, extremes = _footer(file, tuple(where))
    wanted = [
        number
        for number, told in enumerate(extremes)
        if all(name not in told or told[name][0] <= value <= told[name][1] for name, value in where.items())
    ]
    mixed = {
        name: value
        for name, value in where.items()
        if any(extremes[number].get(name) != (value, value, 0) for number in wanted)
    }
    with pq.ParquetFile(file, metadata=metadata) as opened:
        table = opened.read_row_groups(wanted, [*mixed, *columns], use_threads=False)
    for name, value in mixed.items():
        table = table.filter(pc.equal(table.column(name), value))
    return table


@lru_cache(maxsize=_FOOTERS)
def _footer(file: str, names: tuple[str, ...]) -> tuple[Any, list[dict[str, tuple[str, str, int | None]]]]:
    """A file's metadata, and of each row group the least and the greatest of these columns, where it tells; its nulls.

    A file never changes under its name.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    metadata = pq.read_metadata(file)
    places = [metadata.schema.names.index(name) for name in names]
    extremes = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        told = [(name, group.column(at).statistics) for name, at in zip(names, places, strict=True)]
        extremes.append(
            {
                name: (each.min, each.max, each.null_count)
                for name, each in told
                if each is not None and each.has_min_max
            }
        )
    return metadata, extremes
