"""Offering tracked jobs to AMQP workers: a message in the queue of its name for each time that one is queued."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.model.tracked import Tracked
from amqpjobs.model.tracked_priority import to_amqp
from amqpjobs.model.tracked_ticket import offer
from amqpjobs.streams.errors import BrokerError, Refused, TooLarge, Unroutable
from amqpjobs.streams.port import Outgoing, Properties
from amqpjobs.streams.sender import Sender

log = logging.getLogger("amqpjobs.scheduler")


class Offers:
    """Publishes offers. One that is published and not said to be goes again: who gets both runs the job once."""

    def __init__(self, sender: Sender, clock: Clock, *, timeout: float) -> None:
        self._sender = sender
        self._clock = clock
        self._timeout = timeout

    async def publish(self, jobs: Sequence[Tracked]) -> list[Tracked]:
        """Those that need no other offer: the broker has theirs, or will never take it. Raises BrokerError."""
        now = self._clock.wall()
        messages = [
            Outgoing(offer(job, now=now), names.JOBS_EXCHANGE, job.queue, Properties(priority=to_amqp(job.priority)))
            for job in jobs
        ]
        failed = await self._sender.publish_many(messages, timeout=self._timeout)
        passing = {index: error for index, error in failed.items() if not _is_final(error)}
        for index in failed.keys() - passing.keys():
            log.error("job %d cannot be offered in queue %s: %s", jobs[index].id, jobs[index].queue, failed[index])
        if len(passing) == len(jobs):
            raise next(iter(passing.values()))
        return [job for index, job in enumerate(jobs) if index not in passing]


def _is_final(error: BrokerError) -> bool:
    return isinstance(error, TooLarge | Unroutable | Refused)
