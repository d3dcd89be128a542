"""How a file of sums, or of the index of jids, is laid out: who asks for one class of years reads a small part of it.

Rows are sorted, and a class that has many of them has row groups to itself. Histograms and what is in them are never
null, and the files say so: to read them then takes half the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqpjobs.pipeline.tables import HISTOGRAM, SCHEMAS, SUMS

INDEX_GROUP = 32_768
"""Rows of a row group of the index of jids: who looks for one reads one group of each month."""
_FULL = pa.list_(
    pa.field("element", pa.struct([each.with_nullable(False) for each in HISTOGRAM.value_type.fields]), nullable=False)
)
_HOW = {"jids": {"use_dictionary": ["day"], "column_encoding": {"hash": "DELTA_BINARY_PACKED"}}}
"""Sorted hashes lie close together."""


def write(name: str, rows: pa.Table, file: Path) -> None:
    """Write rows of a table, which have no `date`, as one file: sums by key and time, the index by hash."""
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = _full(_sorted(name, rows))
    sums = SUMS.get(name)
    # Statistics of what is asked for only: who reads years reads the footers of all their files first.
    told = ["hash"] if sums is None else [*sums.key, sums.unit]
    how = {"compression": "zstd", "write_statistics": told, **_HOW.get(name, {})}
    with pq.ParquetWriter(file, whole.schema, **how) as writer:
        for first, end in groups(whole[told[0]], INDEX_GROUP if sums is None else sums.rows):
            writer.write_table(whole.slice(first, end - first), row_group_size=end - first)


def groups(keys: pa.ChunkedArray, most: int) -> Iterator[tuple[int, int]]:
    """Cut sorted rows into groups of `most` at most. No other key is in a group of one that has more than half of that.

    Keys of few rows share groups: each group costs whoever reads the file's footer.
    """
    ends = pc.run_end_encode(keys.combine_chunks()).run_ends.to_numpy()
    begins = np.concatenate([[0], ends[:-1]])
    large = ends - begins > most // 2
    for first, last in pairwise(np.unique([0, *begins[large], *ends[large], len(keys)]).tolist()):
        for at in range(first, last, most):
            yield at, min(at + most, last)


def _sorted(name: str, rows: pa.Table) -> pa.Table:
    """By key, then time; a file of days by quarter first, so that some days of all keys are in a part of it."""
    each = SUMS.get(name)
    order = ["hash"] if each is None else [*each.key, each.unit]
    if each is not None and each.unit == "day":
        rows, order = rows.append_column("quarter", pc.quarter(rows[each.unit])), ["quarter", *order]
    schema = SCHEMAS[name].remove(SCHEMAS[name].get_field_index("date"))
    return rows.sort_by([(column, "ascending") for column in order]).select(schema.names).cast(schema)


def _full(rows: pa.Table) -> pa.Table:
    for at, field in enumerate(rows.schema):
        if field.type == HISTOGRAM:
            lists: Any = rows.column(at).combine_chunks()
            entries = pa.StructArray.from_arrays(lists.flatten().flatten(), fields=_FULL.value_type.fields)
            offsets = pc.subtract(lists.offsets, lists.offsets[0])
            column = pa.ListArray.from_arrays(offsets, entries, type=_FULL)
            rows = rows.set_column(at, pa.field(field.name, _FULL, nullable=False), column)
    return rows
