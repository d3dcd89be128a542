"""Messages of ours that came twice: an append whose confirm was lost is repeated under the same `from` and `seq`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqpjobs.pipeline.lake import Lake

WINDOW = 200_000
"""Offsets before the mark that are looked at after a start: a repeat follows its first within a broker's outage."""
MOST = 100_000
"""Sources that are remembered; when there are more, those of the window remain."""


class Repeats:
    """Knows the last sequence number of each source in one raw table."""

    def __init__(self, lake: Lake, name: str, stream: str) -> None:
        self._lake, self._name, self._stream = lake, name, stream
        self._seqs: dict[str, int] | None = None
        self._fresh: dict[str, int] = {}

    def drop(self, part: Path) -> int:
        """Take repeats out of the files in `part`, which are about to be appended; how many messages that were."""
        seqs = self._known()
        self._fresh, repeated = {}, []
        for offset, source, seq in _messages(part):
            if seq <= self._fresh.get(source, seqs.get(source, 0)):
                repeated.append(offset)
            else:
                self._fresh[source] = seq
        if repeated:
            _rewrite(part, repeated)
        return len(repeated)

    def appended(self) -> None:
        """What `drop` saw is in the table now."""
        self._known().update(self._fresh)
        if len(self._known()) > MOST:
            self._seqs = None

    def _known(self) -> dict[str, int]:
        if self._seqs is None:
            self._seqs = self._load()
        return self._seqs

    def _load(self) -> dict[str, int]:
        mark = self._lake.mark(self._name, self._stream)
        if mark is None:
            return {}
        rows = self._lake.table(self._name).to_pyarrow_dataset()
        near = (pc.field("offset") >= mark.next - WINDOW) & (pc.field("epoch") == mark.epoch)
        found = rows.to_table(columns=["source", "seq"], filter=near & pc.field("source").is_valid())
        last = found.group_by("source").aggregate([("seq", "max")])
        return dict(zip(last["source"].to_pylist(), last["seq_max"].to_pylist(), strict=True))


def _messages(part: Path) -> list[tuple[int, str, int]]:
    """Offset, source and number of each message that tells them, in the stream's order."""
    columns = ["offset", "source", "seq"]
    files = [pq.read_table(file, columns=columns) for file in sorted(part.rglob("*.parquet"))]
    if not files:
        return []
    whole = pa.concat_tables(files).filter(pc.field("source").is_valid())
    rows: Any = whole.group_by(columns).aggregate([]).sort_by("offset").select(columns).to_pydict()
    return list(zip(rows["offset"], rows["source"], rows["seq"], strict=True))


def _rewrite(part: Path, repeated: list[int]) -> None:
    gone = pa.array(repeated, pa.int64())
    for file in sorted(part.rglob("*.parquet")):
        rows = pq.read_table(file, partitioning=None)
        kept = rows.filter(pc.invert(pc.is_in(rows["offset"], value_set=gone)))
        if kept.num_rows < rows.num_rows:
            file.unlink()
        if 0 < kept.num_rows < rows.num_rows:
            pq.write_table(kept, file.with_name("once-" + file.name), compression="zstd")
