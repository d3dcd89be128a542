"""`amqp_stream` and `amqpjobs` in Spark itself, as a program of somebody's uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from amqpjobs.model import names
from amqpjobs.settings import Settings
from tests.pipeline import streams
from tests.pipeline.streams import append
from tests.pipeline.test_replay import queued


def test_messages_of_a_stream_become_jobs(spark: Any, declared: Settings, tmp_path: Path) -> None:
    """In batches, over a checkpoint, also of a stream that was made anew; a batch that is repeated enqueues once."""
    told = {"url": declared.url, "stream": names.EVENTS}

    def enqueue(rows: Any, batch: int) -> None:
        jobs = rows.selectExpr("'Import' AS class", "struct(epoch, CAST(body AS STRING)) AS args")
        writing = jobs.write.format("amqpjobs").mode("append").options(url=declared.url, lake=str(tmp_path / "lake"))
        for _ in range(2 if batch == 0 else 1):  # the first as after a crash just before Spark's own commit
            writing.option("run", f"import-{batch}").save()

    def run() -> None:
        rows = spark.readStream.format("amqp_stream").options(**told, maxMessages="150").load()
        query = rows.writeStream.foreachBatch(enqueue).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    assert spark.read.format("amqp_stream").options(**told).load().count() == 0
    append(declared, names.EVENTS, [b"%d" % n for n in range(200)])
    run()
    streams.recreate(declared, names.EVENTS)
    append(declared, names.EVENTS, [b"%d" % n for n in range(20)])
    run()
    found = [json.loads(message.body)["args"] for message in queued(declared, 220)]
    wanted = [[0, str(n)] for n in range(200)] + [[1, str(n)] for n in range(20)]
    assert sorted(found) == sorted(wanted)
