"""`amqp_stream`: any stream of the broker as a Spark DataFrame, batch or streaming (docs/pipeline.md).

    spark.dataSource.register(AmqpStream)
    spark.readStream.format("amqp_stream").option("stream", "job_metrics").load()

Offsets carry the stream's epoch and the digest of the last message before them: a stream that was deleted and made
anew begins a new epoch, and is never read from the wrong place. A task checks that it got its whole slice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from amqpjobs.pipeline import reading
from amqpjobs.pipeline.tables import FILES, rows_schema
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges
from amqpjobs.streams.errors import NotFound
from amqpjobs.streams.port import Connection
from amqpjobs.streams.ranges import Position, Range, RangeLost

log = logging.getLogger("amqpjobs.pipeline")

Offset = dict[str, Any]
"""`epoch`, `first`, `next`, `digest`, in this order: Spark compares offsets as text.

`first`: where reading of this epoch began. A batch that is planned once more after a crash so begins there again, and
what retention took meanwhile is told.
"""


@dataclass(frozen=True)
class Options:
    """What the options say. `skip`: go on where retention took messages unread; else the query fails.

    `into`: a folder for the rows as files, whose names are then all that Spark gets: how our own tables are filled.
    """

    settings: Settings
    stream: str
    rows: str
    skip: bool
    most: int
    slices: int
    into: str | None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """From Spark's options, whose names have no case. Raises ValueError that says what is wrong."""
        if not given.get("stream"):
            raise ValueError("amqp_stream: .option('stream', NAME) says which stream to read")
        trimmed = given.get("onTrimmed", "fail")
        if trimmed not in ("fail", "skip"):
            raise ValueError(f"amqp_stream: onTrimmed is fail or skip, not {trimmed!r}")
        rows = given.get("rows", "messages")
        rows_schema(rows)
        settings = Settings(url=given["url"]) if "url" in given else Settings()
        most, slices = _number(given, "maxMessages", 1, 100_000), _number(given, "slices", 1, os.cpu_count() or 1)
        return cls(settings, given["stream"], rows, trimmed == "skip", most, slices, given.get("into"))

    @property
    def schema(self) -> pa.Schema:
        """What Spark gets."""
        return rows_schema(self.rows) if self.into is None else FILES


class Slice(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range, epoch: int) -> None:
        self.range = wanted
        self.epoch = epoch


class _Rows:
    """Reads slices: the same for batch and streaming."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice. Raises RangeLost when it is not all there."""
        if not isinstance(partition, Slice):
            return  # Spark plans an empty partition where we gave none
        # Spark starts a Python process to ask for a schema, and one more to plan: neither needs what this does.
        from amqpjobs.pipeline import decode, files  # noqa: PLC0415

        options = self.options
        taken = reading.messages(options.settings, partition.range, skip=options.skip)
        rows = (decode.batch(options.rows, partition.epoch, messages) for messages in taken)
        if options.into is None:
            yield from rows
        else:
            yield files.write(rows, Path(options.into))


class AmqpStream(DataSource):
    """The data source; options: `stream`, `url`, `rows`, `onTrimmed`, `maxMessages`, `slices`, `start`, `end`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "amqp_stream"

    def schema(self) -> StructType:
        """Of `messages`, or of the raw table that `rows` names."""
        return from_arrow_schema(Options.read(self.options).schema)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        return StreamReader(Options.read(self.options))


class BatchReader(_Rows, DataSourceReader):
    """From the offset `start` (default: the first) to before `end` (default: what is there when planning)."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(Options.read(given))
        self._start = _number(given, "start", 0, 0) if "start" in given else None
        self._end = _number(given, "end", 0, 0) if "end" in given else None
        self._digest, self._epoch = given.get("digest"), _number(given, "epoch", 0, 0)

    def partitions(self) -> list[Slice]:
        """The range in slices."""
        wanted = self._wanted()
        return [] if wanted is None else [Slice(each, self._epoch) for each in wanted.slices(self.options.slices)]

    def _wanted(self) -> Range | None:
        stream, digest = self.options.stream, None if self._digest is None else bytes.fromhex(self._digest)
        if self._start is not None and self._end is not None:
            wanted = Range(stream, self._start, self._end, digest)
        else:
            everything = reading.ask(self.options.settings, lambda c: ranges.following(c, stream, None, 2**62))
            if everything is None:
                return None
            start = everything.start if self._start is None else self._start
            end, digest = (everything.end, everything.digest) if self._end is None else (self._end, digest)
            wanted = Range(stream, start, end, digest)
        return wanted if wanted.start < wanted.end else None


class StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of at most `maxMessages`."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        """The first message that there is."""
        return _offset(0, 0, 0, b"")

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxMessages`."""
        return ReadMaxRows(self.options.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing beyond the present tail is offered."""
        tip = reading.ask(self.options.settings, lambda c: ranges.newest(c, self.options.stream))
        self._target = 0 if tip is None else tip.next

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends. Raises RangeLost when retention took messages unread, unless told to skip."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most
        found = reading.ask(self.options.settings, lambda c: self._following(c, start, most))
        if found is None:
            return start
        if found.lost:
            told = f"{found.stream}: retention took {found.lost} offsets before {found.start} unread"
            if not self.options.skip:
                raise RangeLost(f"{told}; .option('onTrimmed', 'skip') goes on without them")
            log.warning("%s", told)
        if found.anew:
            log.warning("%s was made anew: reading begins again, epoch %d", found.stream, start["epoch"] + 1)
        first = start["first"] if start["digest"] and not found.anew else found.start
        return _offset(start["epoch"] + found.anew, first, found.end, found.digest or b"")

    def partitions(self, start: Offset, end: Offset) -> list[Slice]:
        """The batch in slices; of a new epoch from its first message."""
        same = start["digest"] and start["epoch"] == end["epoch"]
        low = start["next"] if same else end["first"]
        wanted = Range(self.options.stream, low, end["next"], bytes.fromhex(end["digest"]))
        return [Slice(each, end["epoch"]) for each in wanted.slices(self.options.slices)]

    async def _following(self, connection: Connection, start: Offset, most: int) -> Range | None:
        position = Position(start["next"], bytes.fromhex(start["digest"])) if start["digest"] else None
        room = most if self._target is None else self._target - start["next"]
        if room <= 0:  # only a stream that was made anew can still hold something for us
            most = self._target or 0
        try:
            found = await ranges.following(
                connection, self.options.stream, position, max(1, most if room <= 0 else min(most, room))
            )
        except NotFound:
            return None  # not declared yet, or deleted a moment ago
        return None if found is not None and room <= 0 and not found.anew else found


def _offset(epoch: int, first: int, following: int, digest: bytes) -> Offset:
    return {"epoch": epoch, "first": first, "next": following, "digest": digest.hex()}


def _number(given: Mapping[str, str], name: str, least: int, default: int) -> int:
    word = given.get(name, str(default))
    if not word.isdecimal() or int(word) < least:
        raise ValueError(f"amqp_stream: {name} is a whole number from {least}, not {word!r}")
    return int(word)
