"""The fold and its protocol, driven at random and breadth first. What the rules promise must hold in every state."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqpjobs.model import names
from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.protocol import Op
from amqpjobs.streams.sqlite_store import FIRST, SqliteStore
from tests.stateful.world import LATER, NOW, World

who = st.integers(0, 1)


class Protocol(RuleBasedStateMachine):
    """Two candidates, people, strangers, a network that loses confirms, machines that die, a stream made anew."""

    may_remake = False

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(due=st.sampled_from([0.0, NOW, LATER]), copies=st.integers(1, 3))
    def add(self, due: float, copies: int) -> None:
        self.world.add(due=due, copies=copies)

    @precondition(lambda self: self.world.tick < 6)
    @rule()
    def time_passes(self) -> None:
        """The recurring job's next tick is due."""
        self.world.tick += 1

    @precondition(lambda self: self.world.added)
    @rule(op=st.sampled_from([Op.DELETE, Op.TRIGGER, Op.RESCHEDULE]), data=st.data())
    def command(self, op: Op, data: st.DataObject) -> None:
        self.world.command(op, data.draw(st.sampled_from(self.world.added)))

    @precondition(lambda self: self.world.commands)
    @rule(data=st.data())
    def repeat_command(self, data: st.DataObject) -> None:
        self.world.repeat_command(data.draw(st.sampled_from(sorted(self.world.commands))))

    @precondition(lambda self: self.world.commands)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        self.world.restore(data.draw(st.sampled_from(sorted(self.world.commands))))

    @rule(index=who, times=st.integers(1, 6))
    def act(self, index: int, times: int) -> None:
        """Some undisturbed progress: act, land, read."""
        for _ in range(times):
            self.world.act(self.world.candidates[index])
            self.world.land(self.world.candidates[index], confirm=True)
            self.world.read(index, len(self.world.log))

    @rule(index=who)
    def act_once(self, index: int) -> None:
        self.world.act(self.world.candidates[index])

    @rule(index=who, claims=st.booleans())
    def act_beside(self, index: int, claims: bool) -> None:
        """Publishing and settling go on while an append is under way, and so does claiming while they do."""
        act = self.world.claim_beside if claims else self.world.act_beside
        act(self.world.candidates[index])

    @rule(index=who, confirm=st.booleans())
    def land(self, index: int, confirm: bool) -> None:
        self.world.land(self.world.candidates[index], confirm=confirm)

    @precondition(lambda self: self.world.late)
    @rule(which=st.integers(0, 5))
    def land_late(self, which: int) -> None:
        self.world.land_late(which)

    @rule(index=who, count=st.integers(1, 5))
    def read(self, index: int, count: int) -> None:
        self.world.read(index, count)

    @rule(index=who, cold=st.booleans())
    def crash(self, index: int, cold: bool) -> None:
        self.world.crash(index, cold=cold and not self.world.remade)

    @precondition(lambda self: self.may_remake and self.world.remade < 2)
    @rule()
    def make_anew(self) -> None:
        self.world.make_anew()

    @invariant()
    def bounds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish()


class ProtocolWithRemaking(Protocol):
    """The same with the stream deleted and declared again."""

    may_remake = True


quick = settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TestProtocol = Protocol.TestCase
TestProtocol.settings = quick
TestProtocolWithRemaking = ProtocolWithRemaking.TestCase
TestProtocolWithRemaking.settings = quick


Move = Callable[[World], None]


def moves(world: World) -> Iterator[Move]:
    """Everything that may happen next in the small world of the breadth-first search."""
    for i, candidate in enumerate(world.candidates):
        if candidate.idle:
            yield lambda w, i=i: w.act(w.candidates[i])  # type: ignore[misc]
        if candidate.publishing:
            yield lambda w, i=i: w.claim_beside(w.candidates[i])  # type: ignore[misc]
        if candidate.sending is not None:
            yield lambda w, i=i: w.land(w.candidates[i], confirm=True)  # type: ignore[misc]
            if world.log[-1:] != [candidate.sending]:
                yield lambda w, i=i: w.land(w.candidates[i], confirm=False)  # type: ignore[misc]
        if candidate.reader.next < len(world.log):
            yield lambda w, i=i: w.read(i)  # type: ignore[misc]
        if candidate.phase == "lead" and world.sources < 3:
            yield lambda w, i=i: w.crash(i, cold=False)  # type: ignore[misc]
            yield lambda w, i=i: w.crash(i, cold=True)  # type: ignore[misc]
    if world.late:
        yield lambda w: w.land_late(0)
    if world.tick < 1:
        yield _pass_time
    if len(world.commands) < 1:
        yield lambda w: w.delete("j0")
        yield _put_off


def _put_off(world: World) -> None:
    world.command(Op.RESCHEDULE, "j0")


def _pass_time(world: World) -> None:
    world.tick += 1


def test_breadth_first() -> None:
    """Every interleaving of one entry, one deletion, one tick, a leader and its successor, up to a number of states."""
    first = World(candidates=1)
    first.add()
    for _ in range(12):  # elected, undisturbed: what is interesting begins at the claim
        if first.candidates[0].phase == "lead":
            break
        first.act(first.candidates[0])
        first.land(first.candidates[0], confirm=True)
        first.read(0, 9)
    assert first.candidates[0].phase == "lead"
    first.candidates.append(first._candidate(first.candidates[0].reader.__class__()))
    seen: set[bytes] = set()
    queue = deque([first])
    while queue and len(seen) < 6000:
        world = queue.popleft()
        for move in moves(world):
            after = copy.deepcopy(world)
            move(after)
            key = pickle.dumps(
                [after.log, after.late, after.tick, sorted(after.publications.items())]
                + [(c.sending, c.phase, c.reader.next, len(c.publishing)) for c in after.candidates]
            )
            if key not in seen:
                seen.add(key)
                after.check()
                if len(seen) % 10 == 0:
                    copy.deepcopy(after).finish()
                queue.append(after)
    assert len(seen) >= 6000


def test_put_off_while_the_claim_is_on_its_way() -> None:
    world = World(candidates=1)
    world.add()
    leader = world.candidates[0]
    while b'"claimed"' not in (leader.sending or b""):
        world.land(leader, confirm=True)
        world.read(0, 9)
        world.act(leader)
    world.command(Op.RESCHEDULE, "j0")
    world.finish()
    assert world.publications["j0"] == 0


def test_deleted_twice_before_anyone_led() -> None:
    """Found by the machine above: what two candidates had read of two nameless incarnations, both at offset 0."""
    world = World()
    world.add()
    world.add(copies=2)
    world.candidates[0].reader.read(world.log)
    world.make_anew()
    world.land_late(0)
    world.candidates[1].reader.read(world.log)
    world.make_anew()
    world.finish()


class Stores(Protocol):
    """SQLite folds to what the plain store folds to, whatever happened."""

    def teardown(self) -> None:
        db = sqlite3.connect(":memory:", isolation_level=None)
        try:
            kept = SqliteStore(db)
            fold = DelayedSet(names.SCHEDULED, kept)
            for offset, body in enumerate(self.world.log):
                fold.fold(offset, body)
            plain = self.world.observe().store
            assert {e.id: e for _, e in kept.all_after(FIRST, 10_000)} == plain.entries()
            assert kept.facts() == plain.facts()
            assert kept.ticks() == plain.ticks()
            assert all(kept.verdicts(u) == plain.verdicts(u) for u in self.world.commands)
            assert kept.due(NOW, 1000) == [e.id for e in self.world.observe().due()]
        finally:
            db.close()


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
