"""The door to tracked jobs: give a command, get the fold's verdict. HTTP, workers and programs all come in here."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from amqpjobs.clock import Clock
from amqpjobs.model import command_names, names
from amqpjobs.model.tracked import Judged, Policy, Tracked
from amqpjobs.model.tracked_commands import Act, Command
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import ConfirmTimeout, ConnectionLost
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.tracked_pages import PagedStart
from amqpjobs.streams.tracked_view import TrackedView

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a command's verdict may take; beyond, it is not known (yet)."""


class NotKnown(Exception):
    """What became of a command is not known: it may have arrived, and then it takes effect all the same."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"the outcome of {uuid} is not known yet")
        self.uuid = uuid


class TrackedDoor:
    """A view of the tracked jobs that is fed while the door is started, and a hand that gives commands.

    Reading and writing have connections of their own: a mistake of one must not end the other. `close` after the last
    `stop`.
    """

    def __init__(self, settings: Settings, clock: Clock, folder: Path, *, name: str) -> None:
        self.clock = clock
        self.view = TrackedView(folder)
        self._reading = Link(settings, f"{name} tracked streams", clock)
        self._writing = Link(settings, f"{name} tracked", clock)
        self.follower = Follower(self._reading, self.view, names.EVENTS, clock=clock, origin=PagedStart(self.view))
        self._appender = Appender(self._writing, names.EVENTS, clock=clock)
        self._waiting: dict[str, asyncio.Future[Judged]] = {}
        self._numbers = itertools.count()
        self._run = secrets.token_urlsafe(6)
        self.on_change: list[Callable[[set[int]], None]] = []
        """Called on the loop after each fold with the numbers of the jobs that it changed."""

    async def start(self) -> None:
        """Begin to read; safe to repeat."""
        if self._settle not in self.follower.on_fold:
            self.follower.on_fold.append(self._settle)
        for service in (self._reading, self._writing, self.follower):
            await service.start()

    async def stop(self) -> None:
        """Stop; what is under way is not known."""
        await self._appender.close()
        for service in (self.follower, self._writing, self._reading):
            await service.stop()

    def close(self) -> None:
        """Close the view's file."""
        self.view.close()

    def new_uuid(self) -> str:
        """A name for a command, that sorts by when it was made: verdicts are kept in that order on disk."""
        return command_names.dated(self.clock.wall(), self._run, next(self._numbers))

    async def ask(self, act: Act, *, by: str = "", uuid: str | None = None, patience: float = PATIENCE) -> Judged:
        """Give a command and wait for the fold's verdict.

        Raises NotKnown when it may have arrived and is not judged within `patience` seconds, and BrokerError when it
        certainly did not arrive.
        """
        command = Command(uuid or self.new_uuid(), self.clock.wall(), act, by)
        loop = asyncio.get_running_loop()
        verdict: asyncio.Future[Judged] = loop.create_future()
        self._waiting[command.uuid] = verdict
        alarm = loop.call_later(patience, _give_up, verdict, command.uuid)
        try:
            await self._append(command, patience)
            return await verdict
        finally:
            alarm.cancel()
            verdict.cancel()
            del self._waiting[command.uuid]

    async def _append(self, command: Command, patience: float) -> None:
        try:
            await self._appender.append([write_command(command)], timeout=patience)
        except (ConfirmTimeout, ConnectionLost) as error:
            raise NotKnown(command.uuid) from error

    @property
    def trouble(self) -> str | None:
        """Why jobs cannot be read or written now; None when they can."""
        for link in (self._reading, self._writing):
            if link.state != "up":
                return link.last_error or "no connection to the broker"
        return self._writing.blocked or (None if self.follower.caught_up else f"still reading {names.EVENTS}")

    async def judged(self, uuid: str) -> Judged | None:
        """What was said of a command of today; None when it is not known (yet)."""

        def look() -> Judged | None:
            verdict = self.view.store.verdict(uuid)
            if verdict is None:
                return None
            return Judged(uuid, verdict, None if verdict.job is None else self.view.store.get(verdict.job))

        return await self.follower.query(look)

    async def job(self, id_: int) -> Tracked | None:
        """A job by its number."""
        return await self.follower.query(lambda: self.view.store.get(id_))

    async def queue(self, name: str) -> Policy | None:
        """The settings of a queue."""
        return await self.follower.query(lambda: self.view.store.queue(name))

    async def is_idle(self, queue: str | None, type_: str | None) -> bool:
        """Whether nothing seems to be there to take: who polls an empty queue writes nothing into the log."""

        def look() -> bool:
            store = self.view.store
            return store.next_queued(queue, type_) is None and (queue is None or store.queue(queue) is not None)

        return await self.follower.query(look)

    async def query(self, question: Callable[[], T]) -> T:
        """Ask the store, between folds."""
        return await self.follower.query(question)

    def _settle(self) -> None:
        for each in self.view.judged:
            waiting = self._waiting.get(each.uuid)
            if waiting is not None and not waiting.done():
                waiting.set_result(each)
        changed, self.view.judged, self.view.changed = self.view.changed, [], set()
        if changed:
            for callback in list(self.on_change):
                callback(changed)


def _give_up(verdict: asyncio.Future[Judged], uuid: str) -> None:
    if not verdict.done():
        verdict.set_exception(NotKnown(uuid))
        verdict.exception()  # nobody may be there to see it: the append, which has as long, ends in its own way
