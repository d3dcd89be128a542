"""Carrying forward, checkpoints, cold readers, a log that loses its head or its tail: driven at random and breadth
first. A reader that begins with a checkpoint must hold what one of the whole log holds, in every state."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.stateful.kept import KeptWorld
from tests.stateful.test_delayed_machine import Protocol

who = st.integers(0, 1)


class Retention(Protocol):
    """The protocol's machine with a cleaner and retention."""

    world: KeptWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = KeptWorld()

    @rule(index=who, count=st.integers(1, 3))
    def carry(self, index: int, count: int) -> None:
        self.world.carry(index, count)

    @rule(index=who)
    def checkpoint(self, index: int) -> None:
        self.world.checkpoint(index)

    @precondition(lambda self: self.world.checkpoints)
    @rule(which=st.integers(0, 3))
    def trim(self, which: int) -> None:
        self.world.trim(which)

    @rule(index=who)
    def settle_down(self, index: int) -> None:
        """A leader at rest, all carried, a checkpoint: what long runs reach and short ones seldom do."""
        for _ in range(8):
            self.world.act(self.world.candidates[index])
            self.world.land(self.world.candidates[index], confirm=True)
            self.world.read(index, len(self.world.log))
        self.world.carry(index, 9)
        while self.world.late:
            self.world.land_late(0)
        self.world.read(index, len(self.world.log))
        self.world.checkpoint(index)


class RetentionWithRemaking(Retention):
    """And the stream deleted and declared again."""

    may_remake = True


class RetentionWithTruncation(Retention):
    """And a broker that loses the log's tail."""

    @rule(index=who, cold=st.booleans())
    def crash(self, index: int, cold: bool) -> None:
        """A disk that is lost too may have been the only one that knew what the broker lost."""
        super().crash(index, cold=cold and not self.world.truncated)

    @precondition(lambda self: self.world.truncated < 2)
    @rule(count=st.integers(1, 6))
    def truncate(self, count: int) -> None:
        self.world.truncate(count)


quick = settings(max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestRetention = Retention.TestCase
TestRetention.settings = quick
TestRetentionWithRemaking = RetentionWithRemaking.TestCase
TestRetentionWithRemaking.settings = quick
TestRetentionWithTruncation = RetentionWithTruncation.TestCase
TestRetentionWithTruncation.settings = quick
