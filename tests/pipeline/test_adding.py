"""Sums that are added up are those of all rows at once, of every coarser table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from amqpjobs.history.store import Store, span
from amqpjobs.pipeline import adding
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.tables import ROLLUPS
from tests.pipeline import sums
from tests.pipeline.streams import NOON

DAY = 86400.0


def drawn(count: int) -> list[sums.Run]:
    rng = random.Random(5)
    return [
        (NOON + rng.random() * 3 * DAY, rng.choice("AB"), "q", round(rng.lognormvariate(9, 1)), rng.random() < 0.1)
        for _ in range(count)
    ]


def files(lake: Path, name: str) -> list[str]:
    return sorted(map(str, (lake / name).glob("date=*/*.parquet")))


def found(names: list[str], columns: str = "* EXCLUDE (date)") -> list[dict[str, Any]]:
    with duckdb.connect() as database:
        read = f"SELECT {columns} FROM read_parquet({names}, union_by_name = true)"
        rows: list[dict[str, Any]] = database.sql(read).to_arrow_table().to_pylist()
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", ROLLUPS)
def test_minutes_become_rows_of_every_table(tmp_path: Path, name: str) -> None:
    runs = drawn(600)
    for at in range(0, 600, 200):
        sums.write(tmp_path / "minutes", "metrics_minute", sums.rows(runs[at : at + 200], "metrics_minute"))
    sums.write(tmp_path / "whole", name, sums.rows(runs, name))
    part = tmp_path / "part"
    adding.written("metrics_minute", files(tmp_path / "minutes", "metrics_minute"), name, part)
    written = sorted(map(str, part.glob("date=*/*.parquet")))
    assert {Path(each).parent.name for each in written} == {
        Path(each).parent.name for each in files(tmp_path / "whole", name)
    }
    assert told(found(written)) == told(found(files(tmp_path / "whole", name)))


def told(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def test_rows_that_are_alone_stay_as_they_are_and_others_are_added(tmp_path: Path) -> None:
    lake, runs = Lake(tmp_path), drawn(300)
    sums.write(tmp_path, "metrics_hour", sums.rows(runs[:250], "metrics_hour"))
    sums.write(tmp_path, "metrics_hour", sums.rows(runs[250:], "metrics_hour"))
    sums.write(tmp_path / "whole", "metrics_hour", sums.rows(runs, "metrics_hour"))
    for date in {each.parent.name for each in map(Path, files(tmp_path, "metrics_hour"))}:
        rows = adding.added("metrics_hour", [each for each in files(tmp_path, "metrics_hour") if f"/{date}/" in each])
        assert isinstance(rows, pa.Table)
        lake.replace("metrics_hour", pa.scalar(date.removeprefix("date=")).cast(pa.date32()).as_py(), rows)
    store = Store(tmp_path)
    columns = "hour, class, count, run_us, run_max_us, run_histogram"
    [whole] = files(tmp_path / "whole", "metrics_hour")
    here = store.rows(f"SELECT {columns} FROM {store.scan('metrics_hour', span(0, NOON * 2))} ORDER BY 1, 2", [])
    assert here == store.rows(f"SELECT {columns} FROM read_parquet('{whole}') ORDER BY 1, 2", [])


def test_an_error_shows_its_last_job(tmp_path: Path) -> None:
    shared = {"class": "A", "queue": "q", "error_class": "E", "fingerprint": "f", "dead": 0}
    rows = [
        {**shared, "hour": NOON + 3600 * n, "count": n + 1, "jid": f"j{n}", "error_message": f"m{n}"} for n in (2, 0, 1)
    ]
    sums.write(tmp_path, "errors_hour", rows)
    adding.written("errors_hour", files(tmp_path, "errors_hour"), "errors_month", tmp_path / "part")
    columns = "count, dead, epoch(last) AS last, jid, error_message"
    [error] = found(sorted(map(str, (tmp_path / "part").glob("date=*/*.parquet"))), columns)
    assert error == {"count": 6, "dead": 0, "last": NOON + 7200, "jid": "j2", "error_message": "m2"}
