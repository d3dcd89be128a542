"""`python -m benchmarks.yardstick_worker QUEUE`: the least that a worker can do.

One metric a job, those of a few milliseconds in one confirmed stream message, then one ack for all of them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import deque
from typing import Any

import orjson
import uvloop
from pamqp import commands
from pamqp.common import FieldTable

from benchmarks.apps import measured
from benchmarks.yardstick_wire import Session, acknowledge, connect, content, publish_method

PREFETCH = 500
PAUSE = 0.004
JOBS, RECORDS = 1, 2
METRICS = "job_metrics"
IDENTITY = f"{socket.gethostname()}:{os.getpid()}:yardstick"


def noop(*arguments: Any) -> None:
    """Nothing."""


def tick(*arguments: Any) -> None:
    """Shows that it ran."""
    measured.tick()


HANDLERS = {"noop": noop, "tick": tick}


class Worker(Session):
    """Runs each job as it is read."""

    def __init__(self) -> None:
        super().__init__()
        self._tag = 0
        self._metrics: list[dict[str, Any]] = []
        self._unconfirmed: deque[int] = deque()
        """For each publish under way, the last delivery that it speaks of."""
        self._confirmed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._publish = publish_method(RECORDS, METRICS)

    def on_deliver(self, tag: int) -> None:
        """Remember what to acknowledge."""
        self._tag = tag

    def on_body(self, body: bytes) -> None:
        """Run the job and note its metric."""
        job = orjson.loads(body)
        started_at, steady = time.time(), time.perf_counter()
        HANDLERS[job["class"]](*job["args"])
        duration_ms = (time.perf_counter() - steady) * 1000
        self._metrics.append(
            {
                "type": "job_metric",
                "timestamp": started_at + duration_ms / 1000,
                "jid": job["jid"],
                "job_class": job["class"],
                "queue": job["queue"],
                "duration_ms": round(duration_ms, 3),
                "status": "success",
                "worker_identity": IDENTITY,
                "attempt": job["retry_count"] + 1,
                "wait_ms": (started_at - job["enqueued_at"]) * 1000,
            }
        )

    def after_read(self) -> None:
        """See that the metrics leave soon."""
        if self._metrics and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._flush)

    def _flush(self) -> None:
        self._timer = None
        metrics, self._metrics = self._metrics, []
        self._unconfirmed.append(self._tag)
        self.transport.write(content(self._publish, RECORDS, orjson.dumps(metrics)))

    def on_confirm(self, tag: int) -> None:
        """Acknowledge the jobs whose metrics are safe. Publishes to one stream are confirmed in order."""
        done = 0
        while self._confirmed < tag:
            done = self._unconfirmed.popleft()
            self._confirmed += 1
        if done:
            self.transport.write(acknowledge(JOBS, done))


async def main(queue: str) -> None:
    """Work until killed."""
    worker = await connect(Worker(), os.environ["BENCH_AMQP"])
    stream: FieldTable = {"x-queue-type": "stream"}
    await worker.call(commands.Queue.Declare(queue=METRICS, durable=True, arguments=stream), RECORDS)
    await worker.call(commands.Confirm.Select(), RECORDS)
    await worker.call(commands.Basic.Qos(prefetch_count=PREFETCH), JOBS)
    await worker.call(commands.Basic.Consume(queue=queue), JOBS)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
