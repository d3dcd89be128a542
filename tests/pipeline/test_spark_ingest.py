"""From the streams into the lake: every entry once, whatever comes between."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import duckdb
import pytest

from amqpjobs.history import lag
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.settings import Settings
from tests.pipeline import streams
from tests.pipeline.conftest import Pipe
from tests.pipeline.streams import append, metric, mixed


def query(lake: Lake, name: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query over one table, `t`."""
    t = lake.table(name).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    found: list[tuple[Any, ...]] = duckdb.sql(sql.format(t="t")).fetchall()
    return found


def test_every_entry_is_one_row_and_the_sums_are_those_of_plain_python(
    pipe: Pipe, declared: Settings, lake: Lake
) -> None:
    metrics = [metric(n) for n in range(2000)]
    append(declared, names.METRICS, mixed(metrics[:1200]))
    pipe(most=60)
    append(declared, names.METRICS, mixed(metrics[1200:]))
    pipe()
    pipe()
    assert query(lake, "raw_metrics", "SELECT count(*), count(DISTINCT jid), count(bad) FROM {t}") == [(2000, 2000, 0)]
    for table in ("metrics_minute", "metrics_hour", "metrics_day"):
        found = query(
            lake, table, "SELECT class, sum(count), sum(failed), sum(retried), sum(run_us) FROM {t} GROUP BY 1"
        )
        assert sorted(found) == expected(metrics), table


def expected(metrics: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    sums: dict[str, Counter[str]] = {}
    for each in metrics:
        of = sums.setdefault(each["job_class"], Counter())
        of["count"] += 1
        of["failed"] += each["status"] == "failed"
        of["retried"] += each["attempt"] > 1
        of["us"] += round(each["duration_ms"] * 1000)
    return sorted((cls, of["count"], of["failed"], of["retried"], of["us"]) for cls, of in sums.items())


def test_bad_messages_are_rows_that_say_why_and_count_nowhere_else(pipe: Pipe, declared: Settings, lake: Lake) -> None:
    bad = [b"", b"{", b"\xff\xfe", b"7", b'"text"', {"type": "job_metric"}, metric(1, timestamp="soon")]
    bad += [metric(2, status="well"), metric(3, job_class=None), metric(4, timestamp=-1.0)]
    odd = [metric(5, duration_ms=float("nan")), [], {"type": "marker", "nonce": "1"}, metric(6, wait_ms=-4)]
    append(declared, names.METRICS, [metric(0), *bad, *odd])
    pipe()
    assert query(lake, "raw_metrics", "SELECT count(bad), count(*) FROM {t}") == [(len(bad), len(bad) + 3)]
    assert query(lake, "raw_metrics", "SELECT bad, body FROM {t} WHERE body = '7'::BLOB") == [
        ("Malformed: neither an object nor an array: 7", b"7")
    ]
    assert query(lake, "metrics_hour", "SELECT sum(count), sum(run_n), sum(wait_n) FROM {t}") == [(3, 2, 3)]


def test_met_02_a_message_that_was_appended_twice_counts_once(pipe: Pipe, declared: Settings, lake: Lake) -> None:
    """1,000 jobs of which 100 fail once, from three workers whose confirms were lost meanwhile; Spark runs three times.

    Repeats come in the same batch (over its slices), in the next one, and after everything else was read.
    """
    statuses = ["failed"] * 100 + ["success"] * 1000
    runs = [metric(number, status=status) for number, status in enumerate(statuses)]
    messages: list[list[dict[str, Any]]] = []
    for number in range(110):
        first, *others = runs[10 * number : 10 * number + 10]
        sent = {"from": f"w{number % 3}", "seq": number // 3 + 1}
        messages.append([{**first, **sent}, *others])
    append(declared, names.METRICS, [*messages[:60], *messages[52:70]])
    pipe()
    append(declared, names.METRICS, [*messages[64:110], *messages[100:110]])
    pipe(sums=False)
    append(declared, names.METRICS, messages[107:110])
    pipe()
    wanted = [("failed", 100, 100), ("success", 1000, 1000)]
    found = query(lake, "raw_metrics", "SELECT status, count(*), count(DISTINCT jid) FROM {t} GROUP BY 1 ORDER BY 1")
    assert found == wanted
    for table in ("metrics_minute", "metrics_hour", "metrics_day"):
        assert query(lake, table, "SELECT sum(count), sum(failed) FROM {t}") == [(1100, 100)]


def test_a_stream_made_anew_is_read_from_its_start(pipe: Pipe, declared: Settings, lake: Lake) -> None:
    append(declared, names.METRICS, [metric(n) for n in range(50)])
    pipe()
    streams.recreate(declared)
    append(declared, names.METRICS, [metric(n) for n in range(100, 120)])
    began = time.time()
    pipe()
    told = {each.stream: each for each in lag.read(lake.folder)}[names.METRICS]
    assert told.messages == 0
    assert told.since is not None and told.since >= began
    rows = query(lake, "raw_metrics", "SELECT epoch, count(*), count(DISTINCT jid) FROM {t} GROUP BY 1 ORDER BY 1")
    assert rows == [(0, 50, 50), (1, 20, 20)]
    assert query(lake, "metrics_hour", "SELECT sum(count) FROM {t}") == [(70,)]


def test_the_lake_has_one_writer(lake: Lake) -> None:
    from amqpjobs.pipeline.lake import LakeBusy

    with lake.writing(), pytest.raises(LakeBusy, match=r"is written by process [0-9]+"), Lake(lake.folder).writing():
        pass
