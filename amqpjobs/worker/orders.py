"""Knows what operators ask of this worker: follows the stream `controls`, from before the first job is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable

from amqpjobs.clock import Clock
from amqpjobs.model import controls, names
from amqpjobs.model.controls import Controls
from amqpjobs.service import Service
from amqpjobs.settings import Settings
from amqpjobs.streams.controls_view import ControlsView
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link

log = logging.getLogger("amqpjobs.worker")

PATIENCE = 5.0
"""Seconds that a start waits to know what is asked; a broker that does not tell must not keep jobs from running."""
STEP = 0.05


class Orders:
    """Calls `obey` with what holds, at the start and after each change. It has a connection of its own.

    A user who may not read `controls` gets one line in the log, and a worker that works.
    """

    def __init__(self, settings: Settings, name: str, obey: Callable[[Controls], None], clock: Clock) -> None:
        self._view = ControlsView()
        self._link = Link(settings, name, clock)
        self._follower = Follower(self._link, self._view, names.CONTROLS, clock=clock)
        self._follower.on_fold.append(self._tell)
        self._obey = obey
        self._clock = clock

    @property
    def service(self) -> Service:
        """The loop that must not end by itself."""
        return self._follower

    @property
    def known(self) -> Controls | None:
        """What holds; None while that is not known."""
        return self._view.log.controls if self._follower.caught_up else None

    async def start(self) -> None:
        """Begin to follow; returns once all is known that was asked before, or cannot be known now."""
        await self._link.start()
        await self._follower.start()
        deadline = self._clock.steady() + PATIENCE
        while not self._follower.caught_up and self._follower.trouble is None:
            if self._clock.steady() >= deadline:
                log.warning("what operators ask of workers is not known yet: %s is not read to its end", names.CONTROLS)
                return
            await self._clock.sleep(STEP)
        self._tell()

    async def stop(self) -> None:
        """Stop following and close the connection; safe to repeat."""
        await self._follower.stop()
        await self._link.stop()

    def _tell(self) -> None:
        """Without a leader nobody writes snapshots, and what is older than a day has to be left out here."""
        self._obey(controls.kept(self._view.log.controls, self._clock.wall()))
