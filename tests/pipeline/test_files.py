"""Files of rows: what a task wrote and told is kept, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amqpjobs.pipeline import decode, files
from amqpjobs.pipeline.lake import COMPACT, Lake, Mark
from amqpjobs.pipeline.tables import RUNS
from amqpjobs.streams.port import Incoming, Properties
from tests.pipeline.streams import NOON, metric

DAY = 86_400


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Runs of two days in turn, five a batch."""
    for at in range(0, count, 5):
        runs = [metric(n, timestamp=NOON + n % 2 * DAY) for n in range(at, at + 5)]
        bodies = [json.dumps(run).encode() for run in runs]
        yield decode.batch("raw_metrics", 0, [Incoming(each, 1, "", "", False, Properties(), at) for each in bodies])


def test_each_day_has_a_file_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP", 7)
    files.keep(tmp_path, files.write(batches(40), tmp_path)["file"].to_pylist())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["date=2026-01-01", "date=2026-01-02"]
    for parity, folder in enumerate(sorted(tmp_path.iterdir())):
        [file] = folder.iterdir()
        rows = pq.read_table(file, partitioning=None)
        assert rows.schema == RUNS.remove(RUNS.get_field_index("date"))
        assert rows["jid"].to_pylist() == [f"{n:024x}" for n in range(40) if n % 2 == parity]
        assert pq.read_metadata(file).num_row_groups > 1


def test_what_a_task_wrote_that_failed_is_not_kept(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(10)
        raise ValueError("the broker is gone")

    with pytest.raises(ValueError, match="is gone"):
        files.write(failing(), tmp_path)
    told = files.write(batches(5), tmp_path)["file"].to_pylist()
    files.keep(tmp_path, told)
    found = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(told)


def test_a_slice_without_rows_is_no_file(tmp_path: Path) -> None:
    part = tmp_path / "part"
    files.keep(part, files.write([], part)["file"].to_pylist())
    assert not part.exists()


def test_a_run_takes_little_room_also_once_it_is_compacted(tmp_path: Path) -> None:
    """A jid is 24 random digits, which nothing makes smaller than 12 bytes."""
    rng, lake = random.Random(7), Lake(tmp_path)
    for part in range(10):
        numbers = range(1000 * part, 1000 * (part + 1))
        runs = [metric(n, jid=rng.randbytes(12).hex(), duration_ms=rng.lognormvariate(4, 1)) for n in numbers]
        bodies = [json.dumps(runs[at : at + 20]).encode() for at in range(0, 1000, 20)]
        told = [Incoming(each, 1, "", "", False, Properties(), 50 * part + at) for at, each in enumerate(bodies)]
        folder = lake.new_part("raw_metrics")
        files.keep(folder, files.write([decode.batch("raw_metrics", 0, told)], folder)["file"].to_pylist())
        lake.append("raw_metrics", folder, "job_metrics", Mark(0, 50 * (part + 1)))
    assert 12 < size(lake) < 22
    lake.table("raw_metrics").optimize.compact(writer_properties=COMPACT)
    assert 12 < size(lake) < 17


def size(lake: Lake) -> float:
    """Bytes of a row."""
    told = lake.table("raw_metrics").get_add_actions(flatten=True)
    return float(sum(told["size_bytes"].to_pylist()) / sum(told["num_records"].to_pylist()))
