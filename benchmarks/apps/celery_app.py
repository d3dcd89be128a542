"""Celery over RabbitMQ: `celery -A benchmarks.apps.celery_app worker`, and `-m benchmarks.apps.celery_app N JOB`."""

from __future__ import annotations

import os
import sys
from typing import Any

from celery import Celery

from benchmarks.apps import measured

app = Celery("bench", broker=os.environ["BENCH_AMQP"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,  # as all the others that have a broker: acknowledged after the job
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(*arguments: Any) -> None:
    """Nothing."""


@app.task(name="tick")
def tick(*arguments: Any) -> None:
    """Shows that it ran."""
    measured.tick()


def main(jobs: int, job: str) -> None:
    """Enqueue so many."""
    task = {"noop": noop, "tick": tick}[job]
    with app.producer_or_acquire() as producer, measured.measured(jobs):
        for _ in range(jobs):
            task.apply_async(measured.ARGUMENTS, producer=producer)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
