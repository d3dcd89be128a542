"""Quantiles of many histograms at once, added up by key in arrays: to group them in SQL takes five times as long."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from amqpjobs.history.buckets import Bucket

if TYPE_CHECKING:
    import pyarrow as pa

Places = dict[Hashable, dict[float, tuple[Bucket, float]]]
"""Of keys and shares (0 to 1): the bucket that the share falls into, and the share of those in it that lie below."""
AT_ONCE = 4096
"""Keys that are added up together: of each there is an array of all buckets, some kilobytes."""


def places(table: pa.Table, shares: Sequence[float]) -> Places:
    """Where the shares lie, of each `key` all its `histogram`s together; keys without any duration are left out."""
    import numpy as np  # noqa: PLC0415 - an extra

    keys = table.column("key").combine_chunks().dictionary_encode()
    lists = table.column("histogram").combine_chunks()
    of = np.repeat(keys.indices.to_numpy(), np.diff(lists.offsets.to_numpy()))
    entries = lists.flatten()
    figures = [entries.field(name).to_numpy() for name in ("bucket", "n", "us")]
    names, found = keys.dictionary.to_pylist(), Places()
    for first in range(0, len(names), AT_ONCE):
        block = (of >= first) & (of < first + AT_ONCE) if len(names) > AT_ONCE else slice(None)
        bucket, n, us = (figure[block] for figure in figures)
        for index, share, *place in _placed(of[block] - first, bucket, n, us, shares):
            found.setdefault(names[first + index], {})[share] = (Bucket(*place[:3]), place[3])
    return found


def _placed(of: Any, bucket: Any, n: Any, us: Any, shares: Sequence[float]) -> Iterator[tuple[Any, ...]]:
    """Of each key (by its index) and share: the bucket, what is in it, and where in it the share lies."""
    import numpy as np  # noqa: PLC0415 - an extra

    if not len(of):
        return
    low = int(bucket.min())
    keys, width = int(of.max()) + 1, int(bucket.max()) - low + 1
    cell = of * width + (bucket - low)
    counts, sums = (np.bincount(cell, weights, keys * width).reshape(keys, width) for weights in (n, us))
    yield from placed(counts, sums, low, shares)


def placed(counts: Any, sums: Any, low: int, shares: Sequence[float]) -> Iterator[tuple[Any, ...]]:
    """As `_placed`, of arrays with a row a key and a column a bucket, from `low` on; there may be none."""
    import numpy as np  # noqa: PLC0415 - an extra

    if not counts.size:
        return
    upto = counts.cumsum(axis=1)
    some = np.flatnonzero(upto[:, -1])
    for share in shares:
        rank = share * (upto[some, -1] - 1)
        at = (upto[some] <= rank[:, None]).sum(axis=1)
        inside, total = counts[some, at], sums[some, at]
        within = (rank - (upto[some, at] - inside) + 0.5) / inside
        columns = (some, at + low, inside.astype(int), total.astype(int), within)
        for index, *place in zip(*(column.tolist() for column in columns), strict=True):
            yield index, share, *place
