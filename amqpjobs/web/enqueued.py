"""The jobs that wait in a queue, by the record: those that the enqueue log has, and of which nobody reported a run.

No job is taken out of its queue to look at it. The log is read from its end backwards when somebody looks, and only as
far as it takes: a dashboard that followed it would work as hard as the workers, for a page that is seldom open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import fields, names, reading, text
from amqpjobs.model.messages import Unreadable
from amqpjobs.streams import recent
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming
from amqpjobs.web.items import clip

MOST_READ = 20_000
"""Messages of the log that one look reads at most."""
MOST_LISTED = 1000
LONGEST = 2.0
"""Seconds after which a look reads no further piece."""
FRESH = 3.0
"""Seconds for which what was seen is told to others who look at the same queue."""
PATIENCE = 5.0
"""Seconds after which a broker that does not answer is given up."""
_ARGUMENTS = 200
"""Characters of a job's arguments that are shown."""

OFF = (
    "What waits in the broker's queue is not listed: to look at it would mean to take it out. Set "
    "AMQPJOBS_ENQUEUE_LOG=1 for the programs that enqueue: our clients then put each job on record, and it is listed. "
    "On RabbitMQ, AMQPJOBS_ENQUEUE_LOG=bound puts those of any other program on record too."
)

LACKS = {
    False: "what other programs enqueued and what the scheduler released",
    True: "jobs without a jid, and what was enqueued before the queue was bound to it",
}
"""What the record does not tell, by whether it is the broker's."""


class Waiting(NamedTuple):
    """A job that was enqueued at `at` (seconds since 1970), with the beginning of its arguments as JSON."""

    jid: str
    cls: str
    at: float
    args: str


class Look(NamedTuple):
    """What was seen: the jobs, the oldest first; whether the record could tell; and what it does not tell, in words."""

    jobs: Sequence[Waiting]
    listed: bool
    why: str


Begun = Callable[[Sequence[Waiting]], Awaitable[Set[str]]]


class EnqueuedLook:
    """Looks for the jobs that wait. `begun` tells which of some jobs have run, run now, or ran before it can tell."""

    def __init__(self, link: Link, clock: Clock, begun: Begun) -> None:
        self._link, self._clock, self._begun = link, clock, begun
        self._one = asyncio.Lock()  # ten browsers on one page read the log once
        self._seen: dict[str, tuple[float, Look]] = {}

    async def of(self, queue: str) -> Look:
        """What waits in a queue, as far as the record tells. Never raises: what cannot be known is said."""
        async with self._one:
            now = self._clock.steady()
            self._seen = {name: seen for name, seen in self._seen.items() if now - seen[0] < FRESH}
            if queue not in self._seen:
                self._seen[queue] = (now, await self._look(queue))
            return self._seen[queue][1]

    async def _look(self, queue: str) -> Look:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._read(queue)
        except (BrokerError, TimeoutError) as error:
            return Look((), listed=False, why=f"What waits could not be read from the record: {error or 'no answer'}.")

    async def _read(self, queue: str) -> Look:
        connection = await self._link.connection(timeout=PATIENCE)
        state = await connection.passive(names.broker_queue(queue))
        ready = 0 if state is None else state.ready
        if await connection.passive(names.ENQUEUED) is None:
            return Look((), listed=False, why=OFF)
        if not ready:
            return Look((), listed=True, why="")
        found: list[Waiting] = []
        began, wanted, read = self._clock.steady(), min(ready, MOST_LISTED), 0
        async for piece in recent.pieces(connection, names.ENQUEUED, MOST_READ):
            read += len(piece)
            of_queue = await asyncio.to_thread(_of_queue, piece, queue)
            begun = await self._begun(of_queue)
            found = [job for job in of_queue if job.jid not in begun] + found
            if len(found) >= wanted or self._clock.steady() - began > LONGEST:
                break
        # Queues are first in, first out: what is ready came last; before it is what workers hold and have not begun.
        found = found[-wanted:]
        lacks = LACKS[self._link.settings.enqueue_log == "bound"]
        return Look(found, listed=True, why=_missing(ready, len(found), read, lacks))


def _missing(ready: int, listed: int, read: int, lacks: str) -> str:
    if listed >= ready:
        return ""
    return (
        f"{listed:,} of the {ready:,} jobs that wait are listed, the newest: the record was read back over {read:,} "
        f"messages, and lacks {lacks}."
    )


def _of_queue(messages: Iterable[Incoming], queue: str) -> list[Waiting]:
    """The jobs of one queue, in the order of the log; in a thread."""
    found: dict[str, Waiting] = {}
    mark = queue.encode()
    for message in messages:
        if reading.routed(message.exchange):
            entries = _routed(message) if message.routing_key == queue else []
        else:
            entries = _entries(message.body) if mark in message.body else []
        for entry in entries:
            job = _waiting(entry) if entry.get("queue") == queue else None
            if job is not None:
                found[job.jid] = job
    return list(found.values())


def _entries(body: bytes) -> list[Mapping[str, Any]]:
    try:
        value = text.parse(body)
    except text.NotJson:
        return []
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _routed(message: Incoming) -> list[Mapping[str, Any]]:
    """A job that the broker put on record, as the entry that a client of ours writes."""
    job = reading.read_job(message.body, queue=message.routing_key, jid="", message_id=message.properties.message_id)
    if isinstance(job, Unreadable):
        return []
    at = job.created_at if job.enqueued_at is None else job.enqueued_at
    shown = {"class": job.cls, "args": job.args}
    return [{"jid": job.jid or None, "queue": message.routing_key, "at": at, "job": shown}]


def _waiting(entry: Mapping[str, Any]) -> Waiting | None:
    job, jid, at = entry.get("job"), fields.name(entry.get("jid")), fields.instant_or_none(entry.get("at"))
    if not isinstance(job, dict) or jid is None or at is None:
        return None
    args = text.dump(text.strict(job.get("args"))).decode()
    return Waiting(clip(jid), clip(fields.words(job.get("class"))), at, args[:_ARGUMENTS])
