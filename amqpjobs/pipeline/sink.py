"""`df.write.format("amqpjobs")`: a DataFrame is enqueued, one job a row (docs/pipeline.md).

    spark.dataSource.register(AmqpJobs)
    df.selectExpr("array(id) AS args").write.format("amqpjobs").option("class", "Import").mode("append").save()

A column is what `enqueue` calls an option. With the option `run`, a job's jid is made of the run's name and of what the
row says, and what the broker confirmed is noted in the lake's folder: a task that is tried again, or a run that is
repeated, enqueues the rest.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from amqpjobs import payload
from amqpjobs.batch import Call, PartlyEnqueued, parts
from amqpjobs.client import moment
from amqpjobs.payload import EnqueueOptions
from amqpjobs.pipeline.ledger import Ledger
from amqpjobs.settings import Settings
from amqpjobs.sync import SyncClient

WINDOW = 1000
"""Jobs that are enqueued, and noted, at a time."""
COLUMNS = ("class", "args", "kwargs", "at", *EnqueueOptions.__annotations__)
OPTIONS = ("class", "queue", "run", "url", "lake")


class AmqpJobs(DataSource):
    """The data source, to write to; options: `class` and `queue` (for rows that say none), `run`, `url`, `lake`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "amqpjobs"

    def writer(self, schema: StructType, overwrite: bool) -> JobWriter:
        """For `df.write`. Raises ValueError for columns and options that say nothing of a job."""
        if overwrite:
            raise ValueError("amqpjobs: jobs are added, there is nothing to overwrite: .mode('append')")
        return JobWriter(self.options, schema.names)


class Job(NamedTuple):
    """A row: what it asks for, and when it is due (seconds since 1970; None: now)."""

    jid: str | None
    name: str
    arguments: list[Any] | dict[str, Any]
    options: EnqueueOptions
    due: float | None

    @property
    def call(self) -> Call:
        """As `enqueue_many` takes it."""
        return self.name, self.arguments, self.options


class JobWriter(DataSourceArrowWriter):
    """Enqueues the rows of a task. What it has is planned on the driver and travels to the tasks."""

    def __init__(self, given: Mapping[str, str], columns: list[str]) -> None:
        self._settings = Settings(url=given["url"]) if "url" in given else Settings()
        self._class, self._queue, self._run = given.get("class"), given.get("queue"), given.get("run")
        _check(given, columns)
        lake = Path(given.get("lake", self._settings.lake_dir)).absolute()  # tasks have working folders of their own
        self._folder = lake / "enqueued" / (self._run or "")
        self._plan = uuid.uuid4().hex
        self._before = sorted(self._folder.glob("*")) if self._run else []

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue a task's rows. Raises ValueError, TypeError (naming the row), BrokerError; then it is tried again."""
        ledger = self._ledger() if self._run else None
        rows = (row for batch in iterator for row in batch.to_pylist(maps_as_pydicts="strict"))
        with SyncClient(self._settings) as client:
            while window := list(itertools.islice(rows, WINDOW)):
                jobs = [self._job(row) for row in window]
                if ledger is not None:
                    jobs = list({job.jid: job for job in jobs if job.jid not in ledger.done}.values())
                _send(client, jobs, ledger)
        return WriterCommitMessage()

    def _ledger(self) -> Ledger:
        task = TaskContext.get()
        number, attempt = (task.partitionId(), task.attemptNumber()) if task else (0, 0)
        mine = f"{self._plan}-{number}-"
        return Ledger(self._folder / f"{mine}{attempt}", [*self._before, *self._folder.glob(f"{mine}*")])

    def _job(self, row: Mapping[str, Any]) -> Job:
        try:
            return self._checked({name: value for name, value in row.items() if value is not None})
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"amqpjobs: {error}; the row is {row!r:.200}") from None

    def _checked(self, told: dict[str, Any]) -> Job:
        name, args, kwargs = told.pop("class", self._class), told.pop("args", []), told.pop("kwargs", {})
        if not isinstance(args, list | dict) or not isinstance(kwargs, dict):
            raise TypeError("args is an array or a struct, kwargs a struct or a map")
        if args and kwargs:
            raise ValueError("a job has args or kwargs, not both")
        due = moment(told.pop("at")) if "at" in told else None
        if self._queue is not None:
            told.setdefault("queue", self._queue)
        arguments = kwargs or (list(args.values()) if isinstance(args, dict) else list(args))
        options: Any = told
        if self._run and "jid" not in told:
            told["jid"] = _jid(self._run, [name, arguments, told, due])
        payload.document(name, arguments, options, jid=payload.check_jid(told.get("jid", "new")), now=0.0)
        return Job(told.get("jid"), name, arguments, options, due)


def _check(given: Mapping[str, str], columns: list[str]) -> None:
    for what, found, known in (("column", columns, COLUMNS), ("option", given, OPTIONS)):
        for name in found:
            if name not in known:
                raise ValueError(f"amqpjobs: a job has no {what} {name!r}: there are {', '.join(known)}")
    if "class" not in columns and not given.get("class"):
        raise ValueError("amqpjobs: a column or the option `class` says which job is enqueued")
    run = given.get("run")
    if run is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", run):
        raise ValueError(f"amqpjobs: run is up to 64 letters, digits and ._-, not {run!r}")


def _send(client: SyncClient, jobs: list[Job], ledger: Ledger | None) -> None:
    """Enqueue them, and note which of them the broker has, also when it has not all. Raises BrokerError."""
    later = [client.submit(*parts(job.call), at=job.due) for job in jobs if job.due is not None]
    failed: Exception | None = None
    try:
        confirmed = client.enqueue_many(job.call for job in jobs if job.due is None)
    except PartlyEnqueued as error:
        confirmed, failed = error.confirmed, error
    confirmed += [each.result() for each in later if each.exception() is None]
    if ledger is not None:
        ledger.add(confirmed)
    for each in later:
        each.result()
    if failed is not None:
        raise failed


def _jid(run: str, said: list[Any]) -> str:
    """The jid of a row in a run: always the same."""
    text = json.dumps([run, *said], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
