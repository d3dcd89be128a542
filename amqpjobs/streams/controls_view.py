"""The view of `controls`: in memory, read anew from the stream's first at each start, for the stream is short."""

from __future__ import annotations

from collections.abc import Sequence

from amqpjobs.model.controls import ControlLog
from amqpjobs.streams.follow import Message


class ControlsView:
    """What its follower has read; `log.controls` is replaced as a whole, so any thread may look at it."""

    def __init__(self) -> None:
        self.log = ControlLog()
        self._position: tuple[int, bytes] | None = None

    @property
    def reached(self) -> int:
        """The offset of the last message folded; -1 when there is none."""
        return -1 if self._position is None else self._position[0]

    def position(self) -> tuple[int, bytes] | None:
        """Offset and digest of the last message folded."""
        return self._position

    def fold(self, messages: Sequence[Message]) -> None:
        """Fold messages in order."""
        for message in messages:
            self.log.fold(message.offset, message.body)
            self._position = message.offset, message.digest

    def expect(self, messages: int) -> None:
        """There is nothing here to put off."""

    def arrive(self) -> None:
        """Nor to make up for."""

    def renew(self) -> None:
        """The stream was made anew: what held goes on to hold until somebody says otherwise."""
        self.log.renew()
        self._position = None

    def trimmed(self, first: int) -> None:
        """What retention took of this stream, the snapshots that came later have said."""
