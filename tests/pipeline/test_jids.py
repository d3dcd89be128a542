"""The index of jids: a job is found in years of files, whether the index has it already or not."""

from __future__ import annotations

import datetime
import itertools
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amqpjobs.history.reader import FOR_EVER, History
from amqpjobs.history.store import span
from amqpjobs.pipeline import jids
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.tables import BY_NAME, SCHEMAS
from tests.pipeline.streams import NOON

DAY = 86400.0


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def append(lake: Lake, name: str, first: int, rows: list[dict[str, Any]]) -> None:
    """As ingest does: a file a day, and the mark with them."""
    part, schema = lake.new_part(name), SCHEMAS[name].remove(SCHEMAS[name].get_field_index("date"))
    for offset, row in enumerate(rows, first):
        at = datetime.datetime.fromtimestamp(row["at"], datetime.UTC)
        folder = part / f"date={at.date()}"
        folder.mkdir(parents=True, exist_ok=True)
        whole = {"epoch": 0, "offset": offset, "item": 0, **row, "at": at}
        pq.write_table(pa.Table.from_pylist([whole], schema), folder / f"{offset}.parquet")
    lake.append(name, part, BY_NAME[name].stream, Mark(0, first + len(rows)))


def runs(*days: int) -> list[dict[str, Any]]:
    return [{"at": NOON + day * DAY, "jid": f"j{day}", "status": "success"} for day in days]


def read(lake: Lake, jid: str) -> int:
    """How many files of `raw_metrics` are read for this job."""
    scan = History(lake.folder)._scans_of(jid, span(0, FOR_EVER))["raw_metrics"]
    return 0 if scan is None else scan.count(".parquet")


def lives(lake: Lake, jid: str) -> list[tuple[str, float | None]]:
    return [(event.what, event.at) for event in History(lake.folder).life(jid)]


def test_a_job_of_years_ago_is_found_in_the_files_of_its_days(lake: Lake) -> None:
    append(lake, "raw_metrics", 0, [*runs(0, 40, 400, 800), {"at": NOON + 900 * DAY, "jid": "j40", "status": "failed"}])
    append(lake, "raw_retries", 0, [{"at": NOON + 900 * DAY, "jid": "j40", "type": "retry"}])
    before = lives(lake, "j40")
    assert sorted(before) == [("failed", NOON + 900 * DAY), ("retry", NOON + 900 * DAY), ("success", NOON + 40 * DAY)]
    assert read(lake, "j40") == 5
    jids.index(lake)
    assert read(lake, "j40") == 2
    assert read(lake, "nobody") == 0
    assert sorted(lives(lake, "j40")) == sorted(before)
    assert lives(lake, "nobody") == []


def test_what_the_index_lacks_is_searched(lake: Lake) -> None:
    append(lake, "raw_metrics", 0, runs(0, 1, 2))
    jids.index(lake)
    append(lake, "raw_metrics", 3, [{"at": NOON, "jid": "late", "status": "success"}])
    assert lives(lake, "late") == [("success", NOON)]
    assert read(lake, "late") == 1
    jids.index(lake)
    assert lives(lake, "late") == [("success", NOON)]
    assert [lives(lake, f"j{day}") for day in range(3)] == [[("success", NOON + day * DAY)] for day in range(3)]


def test_who_looks_for_one_job_reads_one_group_of_a_month(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jids, "INDEX_GROUP", 2048)  # DuckDB's least
    at, rows = datetime.datetime.fromtimestamp(NOON, datetime.UTC), 5000
    schema = SCHEMAS["raw_metrics"].remove(SCHEMAS["raw_metrics"].get_field_index("date"))
    part = lake.new_part("raw_metrics")
    (part / f"date={at.date()}").mkdir(parents=True)
    runs = [{"epoch": 0, "offset": n, "item": 0, "at": at, "jid": f"j{n}"} for n in range(rows)]
    pq.write_table(pa.Table.from_pylist(runs, schema), part / f"date={at.date()}" / "all.parquet")
    lake.append("raw_metrics", part, BY_NAME["raw_metrics"].stream, Mark(0, rows))
    jids.index(lake)
    [file] = lake.table("jids").file_uris()
    footer = pq.read_metadata(file)
    groups = [footer.row_group(number).column(0).statistics for number in range(footer.num_row_groups)]
    assert len(groups) == 3
    assert all(before.max < after.min for before, after in itertools.pairwise(groups))


def test_its_files_are_joined_and_keep_their_marks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jids, "FEW", 2)
    assert jids.age(lake, time.time()) == float("inf")
    for number in range(4):
        append(lake, "raw_metrics", number, runs(number))
        jids.index(lake)
    assert jids.age(lake, time.time()) < 3600
    assert len(lake.table("jids").file_uris()) <= 2
    assert lake.mark("jids", "raw_metrics") == Mark(0, 4)
    assert [read(lake, f"j{day}") for day in range(4)] == [1] * 4
    [dates] = {tuple(lake.table("jids").to_pyarrow_dataset().to_table()["day"].to_pylist())}
    assert sorted(dates) == [datetime.date(2026, 1, day) for day in range(1, 5)]
