"""The sums of one raw file are those of plain Python, between any two marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from amqpjobs.pipeline import decode, files, summing
from amqpjobs.pipeline.lake import Mark
from amqpjobs.streams.port import Incoming, Properties
from tests.pipeline.streams import NOON, metric
from tests.pipeline.sums import histogram
from tests.pipeline.test_spark_sums import failure

EPOCH = 2


def raw(folder: Path, table: str, entries: Sequence[dict[str, Any]]) -> str:
    """A raw file of these, one a message."""
    told = [Incoming(json.dumps(each).encode(), 1, "", "", False, Properties(), at) for at, each in enumerate(entries)]
    names = files.write([decode.batch(table, EPOCH, told)], folder)["file"].to_pylist()
    files.keep(folder, names)
    [name] = names
    return str(folder / name)


def summed(folder: Path, name: str, done: Mark | None, upto: Mark, file: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(summing.write(name, done, upto, folder / "sums", file)).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("done", "upto", "low", "high"),
    [
        (None, Mark(EPOCH, 400), 0, 400),
        (None, Mark(EPOCH, 150), 0, 150),
        (Mark(EPOCH, 150), Mark(EPOCH, 400), 150, 400),
        (Mark(EPOCH - 1, 390), Mark(EPOCH, 150), 0, 150),
        (Mark(EPOCH, 150), Mark(EPOCH + 1, 10), 150, 400),
    ],
)
def test_runs_between_marks_are_counted(tmp_path: Path, done: Mark | None, upto: Mark, low: int, high: int) -> None:
    metrics = [metric(n, timestamp=NOON + n / 3, duration_ms=None if n % 11 == 0 else n * n / 1000) for n in range(400)]
    metrics[7]["status"] = "cancelled"  # it was taken and not run
    rows = summed(tmp_path, "metrics_minute", done, upto, raw(tmp_path, "raw_metrics", metrics))
    wanted = [each for each in metrics[low:high] if each["status"] != "cancelled"]
    for row in rows:
        begins, key = row["minute"].timestamp(), (row["class"], row["queue"])
        mine = [
            each
            for each in wanted
            if (each["job_class"], each["queue"]) == key and begins <= each["timestamp"] < begins + 60
        ]
        assert row["count"] == len(mine)
        assert row["failed"] == sum(each["status"] == "failed" for each in mine)
        assert row["retried"] == sum(each["attempt"] > 1 for each in mine)
        assert row["code_version"] is None
        for kind, member in (("run", "duration_ms"), ("wait", "wait_ms")):
            figures = [int(each[member] * 1000) for each in mine if each[member] is not None]
            assert (row[f"{kind}_n"], row[f"{kind}_us"]) == (len(figures), sum(figures))
            assert row[f"{kind}_min_us"] == min(figures, default=None)
            assert row[f"{kind}_max_us"] == max(figures, default=None)
            assert row[f"{kind}_histogram"] == [each._asdict() for each in histogram(figures)]
    assert sum(row["count"] for row in rows) == len(wanted)


def test_errors_have_the_first_of_their_jobs(tmp_path: Path) -> None:
    failures = [failure(n) for n in range(30)]
    for each in failures[20:]:
        each["job"] = {**each["job"], "class": "B"}
    rows = summed(tmp_path, "errors_hour", None, Mark(EPOCH, 99), raw(tmp_path, "raw_retries", failures))
    told = {row["class"]: (row["count"], row["dead"], row["jid"], row["error_message"]) for row in rows}
    assert told == {"A": (20, 0, "j0", "no answer in 0 s"), "B": (10, 0, "j20", "no answer in 20 s")}


def test_a_failure_before_1970_is_in_no_hour(tmp_path: Path) -> None:
    timeless = raw(tmp_path, "raw_retries", [{**failure(1), "failed_at": "1960-01-01T00:00:00Z"}])
    assert summed(tmp_path, "errors_hour", None, Mark(EPOCH, 99), timeless) == []
