"""`amqp_stream` as Spark drives it, without a JVM: plans, and slices that are pickled for who reads them."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from amqpjobs.settings import Settings
from amqpjobs.streams import ranges
from amqpjobs.streams.errors import NotFound
from amqpjobs.streams.port import Connection
from amqpjobs.streams.ranges import RangeLost
from tests.pipeline.streams import NOON, STREAM, append, metric, on

NAME = "tried"
SMALL = {**STREAM, "x-max-length-bytes": 40_000, "x-stream-max-segment-size-bytes": 10_000}
"""A stream that keeps some 80 messages of 500 bytes."""
Row = dict[str, Any]


@pytest.fixture
def stream(settings: Settings) -> Settings:
    """Settings of a virtual host that has an empty stream `tried`."""
    declare(settings, STREAM)
    return settings


def declare(settings: Settings, arguments: dict[str, Any]) -> None:
    async def anew(connection: Connection) -> None:
        await connection.delete_queue(NAME)
        await connection.declare_queue(NAME, arguments)

    on(settings, anew)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%0500d" % number for number in range(first, last)]


class Query:
    """A streaming query: its checkpoint is `offset`, as text; `rows` are what its batches brought."""

    def __init__(self, settings: Settings, offset: str | None = None, **options: str) -> None:
        self.reader: Any = source(settings, options).streamReader(None)
        self.offset = json.dumps(self.reader.initialOffset()) if offset is None else offset
        self.batches: list[list[Row]] = []

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def plan(self) -> str:
        """The end of the next batch, as the checkpoint holds it."""
        return json.dumps(self.reader.latestOffset(json.loads(self.offset), self.reader.getDefaultReadLimit()))

    def take(self, end: str) -> list[Any]:
        """Read the batch up to `end`; its slices."""
        slices = self.reader.partitions(json.loads(self.offset), json.loads(end))
        self.batches.append(read(self.reader, slices))
        self.offset = end
        return list(slices)

    def run(self) -> None:
        """All that there is, in as many batches as it takes."""
        while (end := self.plan()) != self.offset:
            self.take(end)


def source(settings: Settings, options: dict[str, str]) -> Any:
    from pyspark.sql.datasource import CaseInsensitiveDict

    from amqpjobs.pipeline.source import AmqpStream

    return AmqpStream(CaseInsensitiveDict({"url": settings.url, "stream": NAME, **options}))


def read(reader: Any, slices: Iterable[Any]) -> list[Row]:
    rows = []
    for each in slices:
        executor, wanted = pickle.loads(pickle.dumps((reader, each)))
        rows += [row for batch in executor.read(wanted) for row in batch.to_pylist()]
    return rows


def batch(settings: Settings, **options: str) -> list[Row]:
    reader = source(settings, options).reader(None)
    return read(reader, reader.partitions())


def bodies(rows: Iterable[Row]) -> list[bytes]:
    return [row["body"] for row in rows]


def trim(settings: Settings, beyond: int) -> int:
    """Append until retention took all offsets up to `beyond`; the first that there is then."""

    async def trimmed(connection: Connection) -> int | None:
        found = await ranges.lowest(connection, NAME)
        return found if found is not None and found > beyond else None

    for _ in range(500):
        if found := on(settings, trimmed):
            return found
        append(settings, NAME, numbers(10**6, 10**6 + 20))
    raise AssertionError(f"{beyond} was never trimmed")


def test_a_batch_is_all_that_there_is_or_the_part_that_was_asked_for(stream: Settings) -> None:
    assert batch(stream) == [], "an empty stream"
    append(stream, NAME, wanted := numbers(0, 5000))
    rows = batch(stream, slices="2")
    assert bodies(rows) == wanted
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    assert {(row["epoch"], row["headers"]) for row in rows} == {(0, "{}")}
    part = batch(stream, start=str(offsets[10]), end=str(offsets[19] + 1))
    assert [row["offset"] for row in part] == offsets[10:20]
    assert batch(stream, start=str(offsets[-1] + 1)) == []
    assert len(source(stream, {"slices": "2"}).reader(None).partitions()) == 2


def test_a_query_takes_every_offset_once_in_batches_of_its_size(stream: Settings) -> None:
    append(stream, NAME, wanted := numbers(0, 4500))
    query = Query(stream, slices="2", maxMessages="4200")
    assert len(query.take(query.plan())) == 2
    query.run()
    append(stream, NAME, more := numbers(4500, 4510))
    resumed = Query(stream, query.offset, maxMessages="4")
    resumed.run()
    assert bodies(query.rows + resumed.rows) == wanted + more
    assert [len(each) <= 4200 for each in query.batches] == [True, True]
    assert [len(each) for each in resumed.batches] == [4, 4, 2]


def test_available_now_ends_where_the_stream_ended_when_it_began(stream: Settings) -> None:
    append(stream, NAME, wanted := numbers(0, 30))
    query = Query(stream, maxMessages="20")
    query.reader.prepareForTriggerAvailableNow()
    append(stream, NAME, numbers(30, 60))
    query.run()
    assert bodies(query.rows) == wanted
    declare(stream, STREAM)
    append(stream, NAME, more := numbers(100, 120))
    anew = Query(stream, query.offset)
    anew.reader.prepareForTriggerAvailableNow()
    append(stream, NAME, numbers(120, 140))
    anew.run()
    assert bodies(real(anew.rows)) == more


def real(rows: Iterable[Row]) -> list[Row]:
    """Without the markers that prove what became of a stream."""
    return [row for row in rows if b"marker" not in row["body"]]


def test_a_stream_made_anew_is_a_new_epoch(stream: Settings) -> None:
    append(stream, NAME, old := numbers(0, 300))
    query = Query(stream)
    query.run()
    assert json.loads(query.offset)["epoch"] == 0
    on(stream, lambda connection: connection.delete_queue(NAME))
    assert query.plan() == query.offset, "deleted: nothing to read, and no error"
    declare(stream, STREAM)
    append(stream, NAME, new := numbers(1000, 1020))
    query.run()
    assert json.loads(query.offset)["epoch"] == 1
    append(stream, NAME, newer := numbers(1020, 1400))  # now it is longer than what was read of the other
    query.run()
    assert bodies(real(query.rows)) == old + new + newer
    assert [row["epoch"] for row in real(query.rows)] == [0] * 300 + [1] * 400


def test_a_stream_made_anew_under_a_planned_batch_is_an_error(stream: Settings) -> None:
    append(stream, NAME, numbers(0, 4500))
    query = Query(stream, slices="2", onTrimmed="skip")
    end = query.plan()
    declare(stream, STREAM)
    append(stream, NAME, numbers(10_000, 14_600))
    with pytest.raises(RangeLost, match="is not the one that was seen there"):
        query.take(end)


@pytest.mark.parametrize("begun", [False, True], ids=["first batch", "later batch"])
def test_what_retention_took_is_told_or_skipped(settings: Settings, begun: bool) -> None:
    declare(settings, SMALL)
    append(settings, NAME, numbers(0, 20))
    query = Query(settings, maxMessages="10")
    if begun:
        query.take(query.plan())
    planned = query.plan()
    first = trim(settings, json.loads(planned)["next"] + 5)
    with pytest.raises(RangeLost, match=r"retention took \d+ to \d+ before they were read"):
        query.take(planned)
    skipping = Query(settings, query.offset, onTrimmed="skip")
    skipping.take(planned)
    assert skipping.rows == []
    with pytest.raises(RangeLost, match=r"retention took \d+ offsets .* unread; .option\('onTrimmed', 'skip'\)"):
        Query(settings, planned).plan()
    skipping.run()
    assert skipping.rows[0]["offset"] >= first
    assert skipping.rows[-1]["body"] == numbers(10**6 + 19, 10**6 + 20)[0]


def test_options_that_cannot_be_are_refused_with_words(stream: Settings) -> None:
    for options, words in [
        ({"stream": ""}, "says which stream"),
        ({"onTrimmed": "ignore"}, "onTrimmed is fail or skip, not 'ignore'"),
        ({"rows": "metrics"}, "is none of messages, raw_metrics"),
        ({"maxMessages": "0"}, "maxMessages is a whole number from 1, not '0'"),
        ({"slices": "many"}, "slices is a whole number from 1"),
        ({"start": "-5"}, "start is a whole number from 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            batch(stream, **options)
    with pytest.raises(NotFound, match="absent"):
        batch(stream, stream="absent")


def test_rows_of_a_table(stream: Settings) -> None:
    """Ten bad messages, arrays and single entries, a duration that is none, times that are off."""
    bad = [b"", b"{", b"\xff\xfe", b"7", b'"text"', {"type": "job_metric"}, metric(1, timestamp="soon")]
    bad += [metric(2, status="well"), metric(3, job_class=None), metric(4, timestamp=-1.0)]
    late, ahead = metric(5, timestamp=NOON - 40 * 86400), metric(6, timestamp=NOON + 400 * 86400)
    good = [metric(7, duration_ms=float("nan")), late, [metric(8), metric(9), ahead], [], metric(10)]
    append(stream, NAME, [*bad[:4], *good, *bad[4:]])
    assert_rows(batch(stream, rows="raw_metrics"), len(bad))


def assert_rows(rows: list[Row], bad: int) -> None:
    assert sum(row["bad"] is not None for row in rows) == bad
    assert all(row["body"] is not None and row["jid"] is None for row in rows if row["bad"])
    good = {int(row["jid"], 16): row for row in rows if not row["bad"]}
    assert sorted(good) == [5, 6, 7, 8, 9, 10]
    assert [good[number]["item"] for number in (8, 9, 6, 10)] == [0, 1, 2, 0]
    assert good[7]["run_us"] is None
    assert good[8]["run_us"] == 9000
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    for number, days in ((5, -40), (6, 400)):
        assert good[number]["at"] == noon + datetime.timedelta(days=days)
        assert good[number]["date"] == good[number]["at"].date()
