"""`df.write.format("amqpjobs")` as Spark drives it, without a JVM: a planned writer is pickled and given rows."""

from __future__ import annotations

import datetime
import json
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.model import names
from amqpjobs.settings import Settings
from tests.pipeline import streams
from tests.pipeline.test_replay import queued

Row = dict[str, Any]


@pytest.fixture
def declared(settings: Settings, tmp_path: Path) -> Settings:
    streams.declare(settings)
    return settings.model_copy(update={"lake_dir": tmp_path / "lake"})


def plan(settings: Settings, columns: list[str], overwrite: bool = False, **options: Any) -> Any:
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.types import StringType, StructField, StructType

    from amqpjobs.pipeline.sink import AmqpJobs

    schema = StructType([StructField(name, StringType()) for name in columns])
    return AmqpJobs(CaseInsensitiveDict({"url": settings.url, "lake": str(settings.lake_dir), **options})).writer(
        schema, overwrite
    )


def write(writer: Any, rows: list[Row], schema: Any = None) -> None:
    """As a task does: the rows come in batches."""
    import pyarrow as pa

    table = pa.Table.from_pylist(rows, schema)
    pickle.loads(pickle.dumps(writer)).write(iter(table.to_batches(max_chunksize=700)))


def jobs(settings: Settings, count: int) -> list[Row]:
    return [json.loads(message.body) for message in queued(settings, count)]


def test_a_row_is_a_job_as_its_columns_say(declared: Settings) -> None:
    import pyarrow as pa

    rows: list[Row] = [
        {"class": "Mail", "args": {"to": "a@b.c", "n": 1}, "priority": 4, "tags": ["x"], "timeout": 2.5},
        {"args": {"to": None, "n": 2}, "retry": 3, "jid": "mine"},
        {"kwargs": [("to", "d")], "meta": {"of": {"night": True}}},
        {"at": datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1), "jid": "later"},
    ]
    fields = {"class": pa.string(), "args": pa.struct({"to": pa.string(), "n": pa.int64()}), "jid": pa.string()}
    fields |= {"kwargs": pa.map_(pa.string(), pa.string()), "meta": pa.struct({"of": pa.struct({"night": pa.bool_()})})}
    fields |= {"priority": pa.int32(), "retry": pa.int32(), "timeout": pa.float64(), "tags": pa.list_(pa.string())}
    fields |= {"at": pa.timestamp("us", "UTC")}
    before = time.time()
    write(plan(declared, list(fields), False, **{"class": "Import"}), rows, pa.schema(fields.items()))
    first, second, third = jobs(declared, 3)
    assert (
        first.items() >= {"class": "Mail", "args": ["a@b.c", 1], "priority": 4, "tags": ["x"], "timeout": 2.5}.items()
    )
    assert second.items() >= {"class": "Import", "args": [None, 2], "retry": 3, "jid": "mine"}.items()
    assert third.items() >= {"args": {"to": "d"}, "meta": {"of": {"night": True}}, "queue": "default"}.items()
    assert "priority" not in second
    [waiting] = streams.entries(declared, names.SCHEDULED)
    assert waiting["jid"] == "later"
    assert waiting["scheduled_at"] == pytest.approx(before + 3600, abs=300)


def test_a_run_that_is_repeated_enqueues_what_is_missing(declared: Settings) -> None:
    rows = [{"class": "Import", "args": [n]} for n in range(1500)]
    broken = [*rows[:1200], {"class": "", "args": [0]}]
    columns = ["class", "args"]
    with pytest.raises(TypeError, match=r"named by a non-empty string.*; the row is \{'class': ''"):
        write(failing := plan(declared, columns, run="night"), broken)
    write(failing, rows[:1200])  # the same task, tried again
    write(plan(declared, columns, run="night"), [*rows[::-1], rows[0]])  # the whole once more, in another order
    found = Counter(job["jid"] for job in jobs(declared, 1500))
    assert set(found.values()) == {1}
    write(plan(declared, columns, run="other"), rows[:10])
    write(plan(declared, columns), rows[:10])
    write(plan(declared, columns), rows[:10])
    assert len({job["jid"] for job in jobs(declared, 1530)}) == 1530


def test_what_makes_no_job_is_refused_with_words(declared: Settings) -> None:
    columns = ["class", "args"]
    plans: list[tuple[dict[str, Any], str]] = [
        ({"columns": ["args"]}, "a column or the option `class` says which job"),
        ({"columns": ["class", "arguments"]}, "a job has no column 'arguments': there are class, args, kwargs, at,"),
        ({"columns": columns, "quene": "low"}, "a job has no option 'quene': there are class, queue, run, url, lake"),
        ({"columns": columns, "run": "../up"}, "run is up to 64 letters"),
        ({"columns": columns, "overwrite": True}, "there is nothing to overwrite"),
    ]
    for given, words in plans:
        with pytest.raises(ValueError, match=words):
            plan(declared, **given)
    rows: list[tuple[Row, str]] = [
        ({"class": "A", "args": [datetime.date(2026, 1, 1)]}, "argument 0 is a date, which JSON cannot carry"),
        ({"class": "A", "args": [1], "kwargs": {"n": 1}}, "args or kwargs, not both; the row is"),
        ({"class": "A", "args": "one"}, "args is an array or a struct"),
        ({"class": "A", "kwargs": [1]}, "kwargs a struct or a map"),
        ({"class": "A", "queue": "no queue"}, "'no queue' cannot be a queue's name"),
        ({"class": "A", "priority": 11}, "priority is a whole number from 0 to 10"),
    ]
    for row, words in rows:
        with pytest.raises((TypeError, ValueError), match=words):
            write(plan(declared, list(row)), [row])
