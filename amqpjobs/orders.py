"""What operators and clients ask of all workers: appended to the streams, obeyed by whoever reads them.

Each order is put on record in `audit` first: whoever dies in between leaves a record, never an order without one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Literal

from amqpjobs.clock import Clock
from amqpjobs.model import audit, control, controls, names, recurring, text
from amqpjobs.model.audit import Ordered, Touched
from amqpjobs.model.protocol import Command, Op, Target
from amqpjobs.model.recurring import Schedule
from amqpjobs.streams.append import Appender
from amqpjobs.streams.link import Link

RecurringOp = Literal["pause", "resume", "remove", "run"]

WAITING = (names.SCHEDULED, names.RETRIES)
"""Where a job waits that is in no queue."""


class Orders:
    """Appends orders on a started link; each call returns once the broker has confirmed it.

    `by` names for people who ordered, `via` from where ("cli", "client"). Raises ValueError for a name that cannot
    be, and BrokerError.
    """

    def __init__(self, link: Link, *, by: str, via: str, clock: Clock) -> None:
        self._by = by
        self._via = via
        self._clock = clock
        self._timeout = link.settings.publish_timeout
        self._audit = Appender(link, names.AUDIT, clock=clock)
        self._controls = Appender(link, names.CONTROLS, clock=clock)
        self._waiting = [Appender(link, stream, clock=clock) for stream in WAITING]

    async def pause(self, queue: str) -> None:
        """No worker starts a job of this queue until it is resumed."""
        entry = controls.write_pause(_queue(queue), by=self._by, at=self._clock.wall())
        await self._record("pause", queue)
        await self._say(entry)

    async def resume(self, queue: str) -> None:
        """Jobs of this queue are started again."""
        entry = controls.write_resume(_queue(queue), by=self._by, at=self._clock.wall())
        await self._record("resume", queue)
        await self._say(entry)

    async def clear(self, queue: str) -> None:
        """Put on record that what waits in a queue is about to be thrown away; the caller does it."""
        await self._record("clear", _queue(queue))

    async def replay(self, name: str, jids: Sequence[str]) -> None:
        """Put on record that these jobs are about to be enqueued, as part of the replay `name`; the caller does it."""
        await self._record("replay", name, jids)

    async def quiet(self, process: str) -> None:
        """A process (nonce, `hostname:pid:tag`, or `*` for all that run now) takes no more jobs."""
        entry = controls.write_order("quiet", _name(process), by=self._by, at=self._clock.wall())
        await self._record("quiet", process)
        await self._say(entry)

    async def stop(self, process: str) -> None:
        """A process (nonce, `hostname:pid:tag`, or `*` for all that run now) stops as by TERM."""
        entry = controls.write_order("stop", _name(process), by=self._by, at=self._clock.wall())
        await self._record("stop", process)
        await self._say(entry)

    async def cancel(self, jids: Sequence[str]) -> None:
        """Jobs that wait for a time are deleted, those in queues are not run, those that run are asked to stop.

        The order for workers is written first: a job that is released in the same moment must not slip through.
        """
        for jid in jids:
            _name(jid)
        if not jids:
            return
        now = self._clock.wall()
        await self._record("cancel", names.CONTROLS, jids)
        await self._say(*(controls.write_cancel(jid, by=self._by, at=now) for jid in jids))
        command = Command(
            uuid=secrets.token_hex(16),
            op=Op.DELETE,
            targets=tuple(Target(jid, None) for jid in jids),
            at=now,
            by=self._by,
        )
        entry = text.dump(control.write_command(command))
        await asyncio.gather(*(appender.append([entry], timeout=self._timeout) for appender in self._waiting))

    async def recurring(self, op: RecurringOp, schedule: Schedule) -> str | None:
        """Pause a recurring job, resume it, remove it, or run its job now, paused or not; then the jid of that run.

        A run is no tick: the next one comes as if nothing had been.
        """
        name, now = schedule.name, self._clock.wall()
        jid = f"{name}@run-{secrets.token_hex(6)}" if op == "run" else None
        await self._record(f"{op} recurring", name, [jid] if jid else [])
        if jid is not None:
            await self._waiting[0].append([recurring.run_entry(schedule, jid, now)], timeout=self._timeout)
        elif op == "remove":
            await self._say(recurring.write_removed(name, by=self._by, at=now))
        else:
            await self._say(recurring.write_paused(name, on=op == "pause", by=self._by, at=now))
        return jid

    async def close(self) -> None:
        """Close the channels; safe to repeat."""
        for appender in (self._audit, self._controls, *self._waiting):
            await appender.close()

    async def _record(self, op: str, place: str, jids: Sequence[str] = ()) -> None:
        name = secrets.token_hex(8)
        entry = audit.write_ordered(
            Ordered(
                action=name,
                command=name,
                op=op,
                place=place,
                by=self._by,
                via=self._via,
                at=self._clock.wall(),
                jobs=tuple(map(Touched, jids)),
            )
        )
        await self._audit.append([text.dump(entry)], timeout=self._timeout)

    async def _say(self, *entries: dict[str, object]) -> None:
        await self._controls.append([text.dump(entry) for entry in entries], timeout=self._timeout)


def _queue(name: str) -> str:
    if not names.is_queue_name(name):
        raise ValueError(
            f"{name!r} cannot be a queue's name: 1 to 200 of ASCII letters, digits and . _ - : are allowed"
        )
    return name


def _name(value: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} names nothing: a string that is not empty does")
    return value
