"""Dramatiq over RabbitMQ: `dramatiq benchmarks.apps.dramatiq_app`, and `-m benchmarks.apps.dramatiq_app N JOB`."""

from __future__ import annotations

import os
import sys
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.apps import measured

broker = RabbitmqBroker(url=os.environ["BENCH_AMQP"])  # its usual middleware; publishes are not confirmed by default
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(*arguments: Any) -> None:
    """Nothing."""


@dramatiq.actor
def tick(*arguments: Any) -> None:
    """Shows that it ran."""
    measured.tick()


def main(jobs: int, job: str) -> None:
    """Enqueue so many."""
    actor = {"noop": noop, "tick": tick}[job]
    with measured.measured(jobs):
        for _ in range(jobs):
            actor.send(*measured.ARGUMENTS)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
