"""Carrying forward, checkpoints, cold readers, a log that loses its head or its tail: driven at random and breadth
first. A reader that begins with a checkpoint must hold what one of the whole log holds, in every state."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.stateful.kept import KeptWorld
from tests.stateful.test_delayed_machine import Protocol, moves

who = st.integers(0, 1)

STATES = 3000
"""States that the breadth-first search goes through."""


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


# Other examples each time, unlike the rest of the suite: what a fixed seed went round was a job lost by a copy of one
# that a broker had lost with the log's tail. 6,000 examples of 60 steps found nothing since.
quick = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    derandomize=False,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestRetention = Retention.TestCase
TestRetention.settings = quick
TestRetentionWithRemaking = RetentionWithRemaking.TestCase
TestRetentionWithRemaking.settings = quick
TestRetentionWithTruncation = RetentionWithTruncation.TestCase
TestRetentionWithTruncation.settings = quick

Steps = list[tuple[str, dict[str, object]]]
LOST_TAIL: dict[str, Steps] = {
    "a checkpoint of the lost tail is believed once retention took what could disprove it": [
        ("settle_down", {"index": 0}),
        ("settle_down", {"index": 1}),
        ("truncate", {"count": 2}),
        ("settle_down", {"index": 0}),
        ("trim", {"which": 0}),
    ],
    "who began with a checkpoint of the lost tail and was not there yet begins again": [
        ("time_passes", {}),
        ("settle_down", {"index": 0}),
        ("time_passes", {}),
        ("settle_down", {"index": 0}),
        ("truncate", {"count": 2}),
        ("truncate", {"count": 3}),
        ("settle_down", {"index": 0}),
    ],
    "a copy of what went down with the tail is not taken for the job that stands in its place now": [
        ("settle_down", {"index": 0}),
        ("truncate", {"count": 3}),
        ("add", {"copies": 1, "due": 0.0}),
        ("read", {"count": 1, "index": 0}),
        ("carry", {"count": 1, "index": 0}),
        ("truncate", {"count": 1}),
        ("add", {"copies": 1, "due": 0.0}),
        ("settle_down", {"index": 0}),
    ],
    "a tick that went down with the tail does not come again": [
        ("settle_down", {"index": 0}),
        *[("time_passes", {})] * 2,
        ("crash", {"cold": True, "index": 1}),
        *[("time_passes", {})] * 4,
        ("truncate", {"count": 1}),
        ("act_once", {"index": 0}),
    ],
}


@pytest.mark.parametrize("steps", LOST_TAIL.values(), ids=LOST_TAIL)
def test_a_broker_that_lost_confirmed_entries(steps: Steps) -> None:
    machine = RetentionWithTruncation()
    machine.bounds()
    for name, arguments in steps:
        getattr(machine, name)(**arguments)
        machine.bounds()
    machine.teardown()


def retention_moves(world: KeptWorld) -> Iterator[Callable[[KeptWorld], None]]:
    """Everything that may happen next; one carry, two checkpoints."""
    yield from moves(world)
    for i in range(len(world.candidates)):
        if world.carries < 1 and world.candidates[i].reader.store.entries():
            yield lambda w, i=i: w.carry(i, 1)  # type: ignore[misc]
        if len(world.checkpoints) < 2 and world.candidates[i].reader.next > 0:
            yield lambda w, i=i: w.checkpoint(i)  # type: ignore[misc]
    if world.checkpoints:
        yield lambda w: w.trim(0)


def test_breadth_first() -> None:
    """Every interleaving of a carry, a deletion, a claim, checkpoints and a trim, up to a number of states."""
    first = KeptWorld(candidates=1)
    first.add()
    while first.candidates[0].phase != "lead" or not first.candidates[0].reader.store.facts().sealed:
        first.act(first.candidates[0])
        first.land(first.candidates[0], confirm=True)
        first.read(0, 9)
    seen: set[bytes] = set()
    queue = deque([first])
    while queue and len(seen) < STATES:
        world = queue.popleft()
        for move in retention_moves(world):
            after = copy.deepcopy(world)
            move(after)
            key = _key(after)
            if key not in seen:
                seen.add(key)
                after.check()
                if len(seen) % 10 == 0:
                    copy.deepcopy(after).finish()
                queue.append(after)
    assert len(seen) >= STATES


def _key(world: KeptWorld) -> bytes:
    candidates = [(c.sending, c.phase, c.reader.next, len(c.publishing)) for c in world.candidates]
    state = [world.log, world.late, world.tick, sorted(world.publications.items()), world.checkpoints, world.first]
    return pickle.dumps([*state, candidates])
