"""`python -m benchmarks.yardstick_publisher N QUEUE JOB`: persistent publishes, each confirmed, 2,000 under way."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time

import orjson
import uvloop
from pamqp import commands
from pamqp.common import FieldTable

from benchmarks.apps import measured
from benchmarks.yardstick_wire import Session, connect, content, publish_method

WINDOW = 2000
AT_ONCE = 100
"""Publishes that go into one write."""
CHANNEL = 1


class Publisher(Session):
    """Counts confirms."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = 0
        self.progress = asyncio.Event()

    def on_confirm(self, tag: int) -> None:
        """On one classic queue confirms come in order, so the highest tag counts them all."""
        self.confirmed = max(self.confirmed, tag)
        self.progress.set()

    async def until_confirmed(self, count: int) -> None:
        """Wait until the broker has the first `count`."""
        while self.confirmed < count:
            self.progress.clear()
            await self.progress.wait()


def job(name: str) -> bytes:
    """One job as our clients write it."""
    now = time.time()
    body = {"jid": secrets.token_hex(12), "class": name, "args": measured.ARGUMENTS, "queue": "default"}
    return orjson.dumps(body | {"retry": 25, "retry_count": 0, "enqueued_at": now, "created_at": now})


async def main(jobs: int, queue: str, name: str) -> None:
    """Publish so many."""
    publisher = await connect(Publisher(), os.environ["BENCH_AMQP"])
    await publisher.call(commands.Confirm.Select(), CHANNEL)
    arguments: FieldTable = {"x-max-priority": 10}
    await publisher.call(commands.Queue.Declare(queue=queue, durable=True, arguments=arguments), CHANNEL)
    method = publish_method(CHANNEL, queue)
    with measured.measured(jobs):
        for sent in range(0, jobs, AT_ONCE):
            count = min(AT_ONCE, jobs - sent)
            publisher.transport.write(b"".join(content(method, CHANNEL, job(name)) for _ in range(count)))
            await publisher.until_confirmed(sent + count - WINDOW)
        await publisher.until_confirmed(jobs)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
