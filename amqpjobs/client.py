"""`Client`: hands jobs to the broker from asyncio code. `amqpjobs.sync.SyncClient` is the same for threads."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from amqpjobs import errors, payload
from amqpjobs.batch import UNDER_WAY, Bulk, Call, parts
from amqpjobs.clock import Clock, SystemClock
from amqpjobs.enqueue_log import EnqueueLog
from amqpjobs.jobs import JobFunction
from amqpjobs.model import names, text
from amqpjobs.orders import Orders
from amqpjobs.payload import EnqueueOptions
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Properties
from amqpjobs.streams.sender import Sender
from amqpjobs.waiting import Verdicts, Waiting

_MILLISECONDS = 1e11
"""A moment from here on is taken for milliseconds: in seconds it would lie beyond the year 5138."""

JobName = str | JobFunction[..., Any]


class Client:
    """Enqueues jobs; safe for many tasks of one event loop.

    What enqueues returns the job's jid once the broker has confirmed it, within `settings.publish_timeout` seconds also
    while the broker is away. Raises TypeError and ValueError (nothing was sent), BrokerUnavailable (no connection;
    nothing was sent), ConfirmTimeout (the job may have arrived: with the same `jid=` a second copy can be
    told apart), TooLarge, Refused.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._link = Link(self.settings, "client", self._clock)
        self._sender = Sender(self._link, clock=self._clock)
        self._scheduled = Appender(self._link, names.SCHEDULED, clock=self._clock)
        self._log = EnqueueLog(self._link, clock=self._clock) if self.settings.enqueue_log is True else None
        self._orders = Orders(self._link, by="client", via="client", clock=self._clock)
        self._waiting = Waiting(self.settings, self._clock)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to connect; safe to repeat. An absent broker shows in the first call that needs it."""
        await self._link.start()

    async def close(self) -> None:
        """Close the connection; safe to repeat."""
        await self._waiting.close()
        await self._sender.close()
        await self._scheduled.close()
        if self._log is not None:
            await self._log.close()
        await self._orders.close()
        await self._link.stop()

    async def enqueue(
        self, job: JobName, *args: Any, kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> str:
        """Put a job on its queue: `await client.enqueue("SendEmailJob", "user@example.com", queue="critical")`.

        `args` are the job's arguments; `kwargs` are keyword arguments in their place. `job` is a class name, whoever
        implements it, or a function made by `@job`, whose own options hold unless given here.
        """
        return await self._enqueue(self.document(job, args, kwargs or {}, options))

    async def enqueue_in(
        self,
        delay: float | timedelta,
        job: JobName,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Put a job on its queue in `delay` seconds (or a timedelta). See `enqueue_at`."""
        due = self._clock.wall() + (errors.seconds(delay) or 0.0)
        return await self._schedule(due, self.document(job, args, kwargs or {}, options))

    async def enqueue_at(
        self,
        when: datetime | float,
        job: JobName,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Put a job on its queue at `when`: a datetime (without a zone: local time) or seconds since 1970.

        The past means now. It may be years ahead: what the stream would forget, the scheduler writes again in time.
        """
        return await self._schedule(moment(when), self.document(job, args, kwargs or {}, options))

    async def enqueue_many(self, calls: Iterable[Call]) -> list[str]:
        """Put many jobs on their queues and return their jids in order: `enqueue_many([("SendEmail", ["a@b.c"])])`.

        Each is a name, or a tuple of name, arguments (a list, or a mapping for keyword arguments) and options. The
        iterable is read in windows of 1,000 (or some MB), the next one while those before it are confirmed; the last
        ten of many are sent once all others are confirmed (`batch.LAST` says why). What is wrong with a call of the
        first window is raised as by `enqueue`, and nothing was sent; later failures are a PartlyEnqueued, which says
        which jobs the broker has.
        """
        bulk = Bulk(calls, self.message)
        sending: deque[tuple[list[Outgoing], asyncio.Task[dict[int, BrokerError]]]] = deque()
        try:
            while window := bulk.read():
                sending.append((window, asyncio.create_task(self.send(window))))
                await asyncio.sleep(0)  # it is on its way before the next one is read
                if len(sending) >= UNDER_WAY:
                    first, task = sending.popleft()
                    bulk.settled(first, await task)
            while sending:
                first, task = sending.popleft()
                bulk.settled(first, await task)
            if last := bulk.last():
                bulk.settled(last, await self.send(last))
        finally:
            for _, task in sending:
                task.cancel()
        return bulk.result()

    async def send(self, window: Sequence[Outgoing]) -> dict[int, BrokerError]:
        """Publish messages made by `message`; why some were not confirmed, by index."""
        await self.start()
        failed = await self._sender.publish_many(window, timeout=self.settings.publish_timeout)
        if self._log is not None:
            await self._log.add([message for index, message in enumerate(window) if index not in failed])
        return failed

    async def cancel(self, *jids: str) -> None:
        """Cancel jobs wherever they are, for a day: waiting for a time, in a queue, or running.

        Those that wait are deleted from `scheduled_jobs` and `retries`; workers drop those that they take from a
        queue, and ask those that run to stop. Such jobs are counted as cancelled, not as failed. Returns once this is
        on record; a job with this jid that is enqueued again within a day is cancelled too.
        """
        await self.start()
        await self._orders.cancel(jids)

    async def delete(self, *jids: str, where: str | None = None) -> Verdicts:
        """Take jobs that wait out of their set: they never run. See `act`."""
        return await self.act("delete", jids, where=where)

    async def trigger(self, *jids: str) -> Verdicts:
        """Run scheduled jobs now. See `act`."""
        return await self.act("trigger", jids)

    async def reschedule(self, *jids: str, at: datetime | float, where: str | None = None) -> Verdicts:
        """Let jobs that wait, scheduled or for their next try, run at another time. See `act`."""
        return await self.act("reschedule", jids, where=where, at=at)

    async def retry(self, *jids: str) -> Verdicts:
        """Run the next try of failed jobs now. See `act`."""
        return await self.act("retry", jids)

    async def kill(self, *jids: str) -> Verdicts:
        """Try failed jobs no more: they join the dead. See `act`."""
        return await self.act("kill", jids)

    async def requeue(self, *jids: str) -> Verdicts:
        """Run dead jobs again, from their first try. See `act`."""
        return await self.act("requeue", jids)

    async def restore(self, *jids: str, where: str | None = None) -> Verdicts:
        """Undo the last deletion of jobs, while their stream still holds them. See `act`."""
        return await self.act("restore", jids, where=where)

    async def act(
        self,
        word: str,
        jids: Sequence[str],
        *,
        where: str | None = None,
        at: datetime | float | None = None,
        by: str = "client",
        patience: float = 30.0,
    ) -> Verdicts:
        """Act on jobs that wait: `word` is one of the methods above. `by` is put on record as who did it.

        Returns by jid what became of it: "done", "not_found", "conflict" (the scheduler has claimed it: it is on its
        way), or None where that was not known `patience` seconds after the last news. `where` ("scheduled", "retries",
        "dead") is needed when a jid waits in more than one set. The first action of a client reads what waits, into the
        state directory. Raises ValueError (nothing was done), NoStateFolder, BrokerError.
        """
        due = None if at is None else moment(at)
        return await self._waiting.act(word, jids, where, due=due, by=by, patience=patience)

    def document(
        self, job: JobName, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions
    ) -> dict[str, Any]:
        """The job as it would be sent now, checked; sends nothing."""
        jid = payload.check_jid(options["jid"]) if options.get("jid") is not None else os.urandom(12).hex()
        if isinstance(job, JobFunction):
            options = {**job.defaults, **options}
            arguments = job.arguments(args, kwargs)
            return payload.document(job.name, arguments, options, jid=jid, now=self._clock.wall())
        if args and kwargs:
            raise TypeError(f"{job}: a job takes positional arguments or kwargs, not both; nothing was sent")
        return payload.document(job, dict(kwargs) if kwargs else list(args), options, jid=jid, now=self._clock.wall())

    def message(self, call: Call) -> Outgoing:
        """The message of one call of `enqueue_many`; its jid is the message's id. Safe in any thread."""
        return _outgoing(self.document(*parts(call)))

    async def _enqueue(self, document: dict[str, Any]) -> str:
        failed = await self.send([_outgoing(document)])
        if failed:
            raise failed[0]
        jid: str = document["jid"]
        return jid

    async def _schedule(self, due: float, document: dict[str, Any]) -> str:
        now = self._clock.wall()
        if due <= now:
            return await self._enqueue(document)
        jid: str = document["jid"]
        entry = {"type": "scheduled_job", "jid": jid, "scheduled_at": due}
        body = text.dump(entry | {"job": text.Verbatim(payload.encode(document))})
        await self.start()
        await self._scheduled.append([body], timeout=self.settings.publish_timeout)
        return jid


def _outgoing(document: dict[str, Any]) -> Outgoing:
    properties = Properties(message_id=document["jid"], priority=document.get("priority"))
    return Outgoing(payload.encode(document), names.JOBS_EXCHANGE, document["queue"], properties)


def moment(when: datetime | float) -> float:
    """Seconds since 1970. Raises TypeError for what is no datetime or number, ValueError for NaN and infinities."""
    if isinstance(when, datetime):
        return when.timestamp()
    if isinstance(when, bool) or not isinstance(when, int | float):
        raise TypeError(f"a time is a datetime or seconds since 1970, not a {type(when).__name__}")
    number = float(when)
    if not abs(number) < 1e18:
        raise ValueError(f"{when!r} is no time")
    return number / 1000 if number >= _MILLISECONDS else number
