"""Records of jobs that end soon after one another share a message, but nothing waits for company that cannot come."""

from __future__ import annotations

import asyncio

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Properties
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.outcomes import Recorder
from amqpjobs.worker.subscription import Delivery, Subscription
from tests.broker.reading import read_all
from tests.conftest import Eventually
from tests.patience import PATIENCE


class StoppedClock(SystemClock):
    """No time passes: what only the end of a wait would bring never comes."""

    def __init__(self) -> None:
        self.waited_for = asyncio.Event()

    def steady(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.waited_for.set()
        await super().sleep(3600.0)


async def test_the_last_job_in_hand_is_recorded_at_once(link: Link, settings: Settings, eventually: Eventually) -> None:
    """A worker with few jobs ahead of their turn has nothing to do until the broker hears of those that ended."""
    connection = await link.connection()
    await topology.ensure(connection, settings)
    ledger, clock = Ledger(), StoppedClock()
    recorder = Recorder(link, ledger, limit=100, clock=clock)
    await recorder.start()
    source = Subscription("default", 3)
    jobs = [Delivery(Incoming(b"{}", tag, "", "", False, Properties()), "default", source) for tag in (1, 2, 3)]
    for job in jobs:
        ledger.begin(job)
        source.delivered(job.incoming.tag)

    def end(index: int) -> None:
        recorder.record(jobs[index], [(names.METRICS, b'{"n":%d}' % index)])

    end(0)  # the first of all is written at once, and those of the next moments wait for one another
    await eventually(lambda: recorder.waiting == 0)
    end(1)
    async with asyncio.timeout(PATIENCE):
        await clock.waited_for.wait()
    end(2)
    await eventually(lambda: recorder.waiting == 0)
    await recorder.stop()
    bodies = [message.body for message in await read_all(connection, names.METRICS)]
    assert [(b'"n":1' in body, b'"n":2' in body) for body in bodies] == [(False, False), (True, True)]
