"""Says what recurring jobs the code of this worker has, once at its start, where that is not known yet."""

from __future__ import annotations

import logging

from amqpjobs import schedules
from amqpjobs.clock import Clock
from amqpjobs.jobs import Registry
from amqpjobs.model import names, text
from amqpjobs.model.controls import Controls
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link

log = logging.getLogger("amqpjobs.worker")

TIMEOUT = 10.0


async def declare(link: Link, jobs: Registry, known: Controls | None, clock: Clock) -> None:
    """Declare what differs, remove what its modules no longer have. A broker that does not take it stops no worker."""
    if known is None:
        if jobs.schedules:
            log.warning("recurring jobs are not declared: what is known of them cannot be read from %s", names.CONTROLS)
        return
    entries = schedules.changes(
        known.recurring, jobs.schedules, jobs.origins, by="a worker's code", at=clock.wall()
    )  # fmt: skip
    if not entries:
        return
    appender = Appender(link, names.CONTROLS, clock=clock)
    try:
        await appender.append([text.dump(entry) for entry in entries], timeout=TIMEOUT)
        for entry in entries:
            log.info("%s: the recurring job %s", entry["op"], entry["name"])
    except BrokerError as error:
        log.warning("recurring jobs could not be declared: %s", error)
    finally:
        await appender.close()
