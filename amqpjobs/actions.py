"""What operators do to jobs that wait: delete, trigger, reschedule, retry, kill, requeue, restore.

Each action is one or more `command` entries in the job's stream, and its outcome is what the fold says of them: done,
not found, or conflict (the leader has claimed the job: it is on its way). First it is put on record in `audit`, then
the commands are appended, each confirmed, then the verdicts are read from a view, and put on record too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence

from amqpjobs.action import Action, Order, Record, Result, Set
from amqpjobs.clock import Clock
from amqpjobs.model import audit, control, names, text
from amqpjobs.model.audit import Judged, Ordered, Touched
from amqpjobs.model.protocol import Command, Op, Target, Verdict
from amqpjobs.restoring import Restorer
from amqpjobs.streams import marks
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.marks import Where
from amqpjobs.streams.sqlite_store import FIRST
from amqpjobs.streams.views import DelayedView

log = logging.getLogger("amqpjobs.actions")

CHUNK = 500
"""Jobs in one command."""
RESTORE_CHUNK = 50
"""Jobs restored at a time: each brings its bytes, and all of these are in memory."""
RECORD_TIMEOUT = 5.0
"""Seconds for which an action waits to see itself in the audit, so that what it did can be undone at once."""
VERDICT_TIMEOUT = 60.0
"""Seconds after which a command that did not come through the view has no known outcome."""


class Actions:
    """Begins actions on a started link, judged by the views of `sets`; `record` is needed to restore.

    Safe for many tasks at once. `close` gives up what is under way: what was appended by then takes effect.
    """

    def __init__(self, link: Link, sets: Mapping[str, Set], record: Record | None, clock: Clock) -> None:
        self._link = link
        self._sets = sets
        self._record = record
        self._clock = clock
        self._timeout = link.settings.publish_timeout
        self._commands = {stream: Appender(link, stream, clock=clock) for stream in sets}
        self._audit = Appender(link, names.AUDIT, clock=clock)
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, order: Order, jobs: Sequence[Target]) -> Action:
        """Act on these jobs; an entry of None means the newest of its jid."""
        return self._begin(order, _chunks(jobs, RESTORE_CHUNK if order.op is Op.RESTORE else CHUNK))

    def begin_all(self, order: Order, where: Where) -> Action:
        """Act on all that match now, and not on what comes later: what fails again is not requeued for ever."""
        return self._begin(order, self._matching(order.stream, where), where)

    async def undo(self, action: str, *, by: str, via: str) -> list[Action]:
        """Restore all that an action deleted, one new action a stream; empty when nothing of it is on record."""
        found: dict[str, list[Target]] = {}
        after = 0
        record = self._need()
        while page := await record.follower.query(lambda: record.store.deletions(action, after, CHUNK)):  # noqa: B023
            for each in page:
                found.setdefault(each.stream, []).append(Target(each.job.jid, each.job.entry))
            after = page[-1].row
        return [self.begin(Order("restore", stream, by, via), jobs) for stream, jobs in found.items()]

    async def close(self) -> None:
        """Give up what is under way and close the channels; safe to repeat."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        for appender in (*self._commands.values(), self._audit):
            await appender.close()

    def _begin(self, order: Order, chunks: AsyncIterator[Sequence[Target]], where: Where | None = None) -> Action:
        action = Action(secrets.token_hex(8), order)
        action.task = task = asyncio.create_task(
            self._run(action, chunks, where or Where()), name=f"action {action.id}"
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return action

    async def _run(self, action: Action, chunks: AsyncIterator[Sequence[Target]], where: Where) -> None:
        try:
            async for chunk in chunks:
                action.asked += len(chunk)
                await (self._restore if action.order.op is Op.RESTORE else self._command)(action, chunk, where)
        except BrokerError as error:
            log.warning("action %s (%s in %s): %s", action.id, action.order.word, action.order.stream, error)
            action.error = error

    # Listing.

    async def _matching(self, stream: str, where: Where) -> AsyncIterator[Sequence[Target]]:
        view, follower = self._sets[stream]
        await follower.wait_caught_up()
        until = await follower.query(lambda: marks.newest(view.store))
        after: int | None = FIRST
        while after is not None:
            page, after = await follower.query(lambda: marks.page(view.store, after, until, where, CHUNK))  # type: ignore[arg-type]  # noqa: B023
            if page:
                yield [Target(mark.jid, mark.entry) for mark in page]

    # One command for many jobs.

    async def _command(self, action: Action, jobs: Sequence[Target], where: Where) -> None:
        order = action.order
        view, follower = self._sets[order.stream]
        epoch, found = await follower.query(lambda: (view.facts().epoch, [_found(view, job) for job in jobs]))
        command = Command(
            uuid=secrets.token_hex(16),
            op=order.op,
            targets=tuple(Target(job.jid, job.entry) for job in found),
            at=self._clock.wall(),
            by=order.by,
            epoch=epoch,
            due=order.due,
        )
        await self._say([self._ordered(action, command, found, epoch, where)])
        await self._append(order.stream, [command])
        verdicts = await self._verdicts(order.stream, command.uuid)
        told: Sequence[Verdict | None] = verdicts or [None] * len(found)
        action.note([Result(job.jid, job.entry, verdict) for job, verdict in zip(found, told, strict=True)])
        if verdicts is not None:
            await self._judged([Judged(command.uuid, tuple(verdicts))])

    # One command a job: each brings its bytes.

    async def _restore(self, action: Action, jobs: Sequence[Target], where: Where) -> None:
        commands: list[Command] = []
        ordered: list[Ordered] = []
        restorer = Restorer(self._link, self._need(), self._clock)
        for job in jobs:
            made = await restorer.command(action.order, job)
            if isinstance(made, Result):
                action.note([made])
                continue
            deletion, command = made
            commands.append(command)
            ordered.append(self._ordered(action, command, [deletion.job], deletion.epoch, where))
        if not commands:
            return
        await self._say(ordered)
        await self._append(action.order.stream, commands)
        judged: list[Judged] = []
        for command in commands:
            verdicts = await self._verdicts(action.order.stream, command.uuid)
            action.note([Result(*command.targets[0], verdicts[0] if verdicts else None)])
            if verdicts:
                judged.append(Judged(command.uuid, tuple(verdicts)))
        await self._judged(judged)

    # Appending and reading.

    def _ordered(
        self, action: Action, command: Command, jobs: Sequence[Touched], epoch: str | None, where: Where
    ) -> Ordered:
        order = action.order
        return Ordered(
            action=action.id,
            command=command.uuid,
            op=order.word,
            place=order.stream,
            by=order.by,
            via=order.via,
            at=command.at,
            jobs=tuple(jobs),
            due=order.due,
            epoch=epoch,
            where=where.said,
        )

    async def _append(self, stream: str, commands: Sequence[Command]) -> None:
        entries = [text.dump(control.write_command(command)) for command in commands]
        await self._commands[stream].append(entries, timeout=self._timeout)

    async def _say(self, ordered: Sequence[Ordered]) -> None:
        entries = [text.dump(audit.write_ordered(each)) for each in ordered]
        await self._audit.append(entries, timeout=self._timeout)

    async def _judged(self, judged: Sequence[Judged]) -> None:
        """Put verdicts on record."""
        now = self._clock.wall()
        entries = [text.dump(audit.write_judged(each, at=now)) for each in judged]
        await self._audit.append(entries, timeout=self._timeout)
        if self._record is not None and judged:
            store, follower = self._record
            with contextlib.suppress(TimeoutError):
                await follower.wait(lambda: store.judged(judged[-1].command) or None, timeout=RECORD_TIMEOUT)

    async def _verdicts(self, stream: str, uuid: str) -> list[Verdict] | None:
        view, follower = self._sets[stream]
        try:
            return await follower.wait(lambda: view.verdicts(uuid), timeout=VERDICT_TIMEOUT)
        except TimeoutError:
            return None

    def _need(self) -> Record:
        if self._record is None:
            raise ValueError("to restore takes a view of the audit, which this process does not keep")
        return self._record


async def _chunks(jobs: Sequence[Target], size: int) -> AsyncIterator[Sequence[Target]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def _found(view: DelayedView, job: Target) -> Touched:
    """The job as the fold would pick it now, with what a restore will need; as asked for where it is not seen."""
    entries = [entry for entry in view.store.of_jid(job.jid) if job.entry in (None, entry.id)]
    free = [entry for entry in entries if entry.claim is None]
    chosen = free[-1] if free else entries[-1] if entries else None
    if chosen is None:
        return Touched(job.jid, job.entry)
    return Touched(job.jid, chosen.id, chosen.pos, None if view.stream == names.DEAD else chosen.due)
