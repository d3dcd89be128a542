"""Carrying forward, and readers that begin with a checkpoint: the rules of docs/engine.md that concern them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from amqpjobs.model import control, copies, names
from amqpjobs.model.checkpoint import Checkpoint, adopt, furthest, read_checkpoint, take, write_checkpoint
from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.legacy import left_over
from amqpjobs.model.lookback import entry_of
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.pending import Claim, Trim
from amqpjobs.model.position import WHOLE, Position
from amqpjobs.model.protocol import Again, Carry, Op, Verdict
from amqpjobs.model.trail import LENGTH, Step, agrees, continued, step
from tests.unit.test_delayed_rules import Log, dead, failed, scheduled


class Kept(Log):
    """A log that can be read again from its middle."""

    def __init__(self, stream: str = names.SCHEDULED, first: int = 0) -> None:
        super().__init__(stream, first)
        self.stream = stream
        self.first = first
        self.bodies: list[bytes] = []
        self.trail: tuple[Step, ...] = ()

    def raw(self, body: bytes) -> int:
        self.bodies.append(body)
        return super().raw(body)

    def seal(self, source: str = "a", n: int = 1, seq: int = 9, epoch: str = "E") -> None:
        self.put(control.write_sealed(epoch, n, at=0), source=source, seq=seq)

    def carry(self, id_: str, *, source: str = "c", seq: int = 1) -> int:
        return self.copy(copies.carry(self.stream, self.entry(id_)), source=source, seq=seq)

    def copy(self, copy: Carry, *, source: str = "c", seq: int = 1) -> int:
        return self.put(control.write_carry(copy), source=source, seq=seq)

    def checkpoint(self) -> Checkpoint:
        digest = hashlib.blake2b(self.bodies[-1], digest_size=16).hexdigest()
        trail = continued(self.trail, [step(self.first + n, body) for n, body in enumerate(self.bodies)])
        found = take(self.stream, self.store, self.offset, digest, trail)
        assert found is not None
        written = json.loads(json.dumps(write_checkpoint(found, by="host", at=1.0)))
        assert read_checkpoint(written) == found
        return found

    def cold(self, checkpoint: Checkpoint) -> Kept:
        """A reader of the same log with nothing but the checkpoint."""
        cold = Kept(self.stream, checkpoint.low)
        adopt(checkpoint, cold.store)
        cold.trail = checkpoint.trail
        for body in self.bodies[checkpoint.low - self.first :]:
            cold.raw(body)
        return cold


def agree(warm: Log, cold: Log) -> None:
    assert cold.store.entries() == warm.store.entries()
    unlike: dict[str, Any] = {"start": None, "upto": 0}
    assert cold.store.facts()._replace(**unlike) == warm.store.facts()._replace(**unlike)
    assert cold.store.sources(99) == warm.store.sources(99)


@pytest.fixture
def log() -> Kept:
    """Led by "a" in term 1, sealed; one entry waits at 0."""
    log = Kept()
    log.put(scheduled("j", due=1e6))
    log.lead()
    log.seal()
    return log


def test_1_and_13_a_carry_moves_the_position_and_nothing_else(log: Kept) -> None:
    before = log.entry("0")
    at = Position(log.carry("0"), 0)
    after = log.entry("0")
    assert (after.pos, after.rev) == (at, at)
    assert (after.id, after.due, after.jid, after.raw) == (before.id, before.due, before.jid, before.raw)
    assert log.store.voids() == []


BETWEEN: dict[str, Callable[[Kept], Any]] = {
    "deleted": lambda log: log.command(Op.DELETE, "j"),
    "triggered": lambda log: log.command(Op.TRIGGER, "j", at=7.0),
    "rescheduled": lambda log: log.command(Op.RESCHEDULE, "j", due=8.0),
    "killed": lambda log: log.command(Op.KILL, "j"),
    "claimed": lambda log: log.claim("0", seq=10),
    "replaced": lambda log: log.put(scheduled("j", 9.0, reschedule=True)),
    "carried": lambda log: log.carry("0", source="other"),
}


@pytest.mark.parametrize("change", BETWEEN.values(), ids=BETWEEN.keys())
def test_13_a_copy_of_what_has_changed_since_has_no_effect(log: Kept, change: Callable[[Kept], Any]) -> None:
    copy = copies.carry(log.stream, log.entry("0"))
    change(log)
    before = log.store.entries()
    at = log.copy(copy)
    assert log.store.entries() == before
    assert log.store.voids() == [Position(at, 0)]
    agree(log, log.cold(log.checkpoint()))


def test_13_a_carry_without_an_origin_has_no_effect(log: Kept) -> None:
    log.put(control.write_carry(copies.carry(log.stream, log.entry("0"))))
    assert log.entry("0").pos == Position(0, 0)


def test_14_a_copy_of_what_is_gone_does_not_bring_it_back(log: Kept) -> None:
    copy = copies.carry(log.stream, log.entry("0"))
    log.claim("0", seq=10)
    log.settle("0", seq=11)
    log.copy(copy)
    assert log.ids == set()


def test_14_a_cold_reader_takes_a_copy_whose_first_is_before_its_start(log: Kept) -> None:
    log.command(Op.RESCHEDULE, "j", due=77.0)
    log.carry("0")
    checkpoint = log.checkpoint()
    assert checkpoint.low == log.entry("0").pos.offset > 0
    cold = log.cold(checkpoint)
    agree(log, cold)
    assert cold.entry("0").due == 77.0


def test_14_beyond_the_checkpoint_what_is_absent_is_gone(log: Kept) -> None:
    copy = copies.carry(log.stream, log.entry("0"))
    log.command(Op.DELETE, "j")
    log.put(scheduled("k"))
    checkpoint = log.checkpoint()
    assert checkpoint.low == 4
    log.copy(copy)
    cold = log.cold(checkpoint)
    agree(log, cold)
    assert "0" not in cold.ids


def test_4_and_21_a_cold_reader_leaves_out_what_was_void(log: Kept) -> None:
    log.put(scheduled("low"))
    copy = copies.carry(log.stream, log.entry("0"))
    log.command(Op.DELETE, "j")
    log.copy(copy)  # what is gone
    log.put(scheduled("twice"), scheduled("more"), source="s", seq=1)
    log.put(scheduled("twice"), scheduled("more"), source="s", seq=1)  # a repeat
    log.claim("3", source="nobody", n=1)  # a claim under no term
    log.put(control.write_term("E", 1, by="b", at=0), source="b", seq=1)  # a term that lost
    settled = control.write_settled("E", 9, ["3"], "expired", by="h", at=0) | {"revs": [[3, 0]]}  # type: ignore[arg-type]
    log.put(settled, source="a", seq=20)
    log.command(Op.DELETE, "low", uuid="u")  # a command that was judged
    checkpoint = log.checkpoint()
    assert checkpoint.void == tuple(Position(*at) for at in ((5, 0), (7, WHOLE), (8, 0), (9, 0), (10, 0), (11, 0)))
    agree(log, log.cold(checkpoint))


def test_4_and_17_a_restore_of_what_is_there_is_void(log: Kept) -> None:
    body = json.dumps(scheduled("j", 5.0)).encode()
    log.put(scheduled("low"))
    log.command(Op.RESTORE, "j", uuid="1", entry="0", body=body)  # it is there: a conflict
    log.command(Op.DELETE, "j", uuid="2")
    checkpoint = log.checkpoint()
    assert checkpoint.void == (Position(4, 0),)
    agree(log, log.cold(checkpoint))
    log.command(Op.RESTORE, "j", uuid="3", entry="0", body=body)
    assert log.ids == {"0", "3"}
    agree(log, log.cold(checkpoint))
    agree(log, log.cold(log.checkpoint()))


def test_12_and_13_what_is_dropped_is_counted_and_a_carry_comes_first_or_after(log: Kept) -> None:
    log.put(scheduled("k"))
    old = log.entry("0").rev
    log.carry("0")
    log.put(control.write_dropped("E", 1, [("0", old), ("3", Position(3, 0))], by="h", at=0), source="a", seq=10)
    assert log.ids == {"0"}
    assert log.store.facts().dropped == 1
    agree(log, log.cold(log.checkpoint()))


@pytest.mark.parametrize("stream", [names.RETRIES, names.DEAD])
def test_4_an_entry_that_gave_way_is_void_too(stream: str) -> None:
    """To a reader that does not know what it gave way to, it would be one that waits."""
    log = Kept(stream)
    first, same = (failed("j", 5), failed("j", 3)) if stream == names.RETRIES else (dead("j"), dead("j"))
    log.put(first)
    log.lead()
    log.seal()
    log.put(scheduled("x") if stream == names.SCHEDULED else {**first, "jid": "low"})
    log.put(same)
    log.command(Op.DELETE, "j")
    checkpoint = log.checkpoint()
    assert checkpoint.low == 3
    agree(log, log.cold(checkpoint))
    assert {entry.jid for entry in log.store.entries().values()} == {"low"}


def test_20_a_checkpoint_is_a_function_of_the_log(log: Kept) -> None:
    log.carry("0")
    log.put(scheduled("k"))
    cold = log.cold(log.checkpoint())
    for each in (log, cold):
        each.put(scheduled("k"), source="s", seq=1)
        each.put(scheduled("k"), source="s", seq=1)
        each.command(Op.DELETE, "j", uuid="later")
    assert cold.checkpoint() == log.checkpoint()


def test_20_without_anything_pending_low_is_upto(log: Kept) -> None:
    log.command(Op.DELETE, "j")
    checkpoint = log.checkpoint()
    assert checkpoint.low == checkpoint.upto == 4
    assert checkpoint.void == ()
    agree(log, log.cold(checkpoint))


def test_21_the_one_that_reaches_furthest_of_the_incarnation_heard_of_last(log: Kept) -> None:
    early = log.checkpoint()
    log.put(scheduled("k"))
    late = log.checkpoint()
    other = Kept()
    other.lead(n=7)
    other.put(control.write_epoch("F", at=0))
    other.seal(n=7)
    assert furthest([late, early]) == [late, early]
    elder = other.checkpoint()
    assert furthest([elder, late, early]) == [late, early, elder] or elder.facts.epoch == late.facts.epoch


def test_21_terms_and_numbers_are_those_at_upto(log: Kept) -> None:
    log.put(control.write_term("E", 5, by="bee", at=0), source="b", seq=1)
    log.put(scheduled("k"), source="s", seq=4)
    log.command(Op.DELETE, "j")
    log.put(scheduled("last"))
    cold = log.cold(log.checkpoint())
    assert cold.store.facts().term == Claim(5, "b")
    assert cold.store.facts().leader == "bee"
    assert cold.store.last_seq("s") == 4
    for each in (log, cold):
        each.put(scheduled("again"), source="s", seq=4)
        each.put(control.write_term("E", 5, by="x", at=0), source="x", seq=1)
    agree(log, cold)


def test_22_of_what_was_asked_before_it_a_cold_reader_says_nothing(log: Kept) -> None:
    assert log.command(Op.DELETE, "j", uuid="before") == [Verdict.DONE]
    log.put(scheduled("j"))
    cold = log.cold(log.checkpoint())
    assert not cold.store.verdicts("before")
    for each in (log, cold):
        each.command(Op.DELETE, "j", uuid="before")
    agree(log, cold)
    assert cold.ids, "a command is obeyed once"
    assert cold.command(Op.DELETE, "j", uuid="after") == [Verdict.DONE]


def test_22_nor_of_what_it_read_below_upto(log: Kept) -> None:
    log.put(scheduled("k"))
    assert log.command(Op.DELETE, "k", uuid="below") == [Verdict.DONE]
    cold = log.cold(log.checkpoint())
    assert cold.store.verdicts("below") == [], "it is known to have been judged, and no more"
    agree(log, cold)


def test_19_and_20_ticks_are_those_at_upto(log: Kept) -> None:
    body = json.dumps(scheduled("r@60")).encode()
    log.put(control.write_tick("E", 1, "r", 60, body), source="a", seq=10)
    log.command(Op.DELETE, "j")
    log.put(scheduled("k"))
    log.command(Op.DELETE, "r@60", uuid="2")
    cold = log.cold(log.checkpoint())
    assert cold.store.ticks() == {"r": 60}
    for each in (log, cold):
        each.put(control.write_tick("E", 1, "r", 60, body), source="a", seq=11)
    agree(log, cold)


def test_23_a_reader_that_has_not_passed_its_checkpoint_takes_none(log: Kept) -> None:
    checkpoint = log.checkpoint()
    store = MemoryStore()
    adopt(checkpoint, store)
    DelayedSet(log.stream, store).fold(0, log.bodies[0])
    assert take(log.stream, store, 1, "d") is None
    assert take(log.stream, store, checkpoint.upto, "d") is not None


def test_25_no_checkpoint_before_the_earlier_life_is_brought_over() -> None:
    log = Kept()
    log.lead()
    assert take(log.stream, log.store, log.offset, "d") is None
    log.seal(source="not the leader")
    assert take(log.stream, log.store, log.offset, "d") is None
    log.seal()
    assert take(log.stream, log.store, log.offset, "d") is not None


def again(jid: str, *, late: bool = False, id_: str = "D/0") -> dict[str, Any]:
    return control.write_again(Again(id_, jid, 42.0, False, None, json.dumps(scheduled(jid)).encode(), late=late))


def test_25_after_the_seal_an_old_entry_is_void_or_new(log: Kept) -> None:
    log.put(again("old"), source="b", seq=1)
    assert log.ids == {"0"}
    at = log.put(again("late", late=True), source="b", seq=2)
    assert log.entry(str(at)).jid == "late"
    log.put(again("late", late=True), source="standby", seq=1)
    assert len(log.ids) == 2
    agree(log, log.cold(log.checkpoint()))


def test_24_and_14_an_old_entry_is_carried_under_its_old_identity() -> None:
    log = Kept()
    log.lead()
    log.put(again("old"), source="a", seq=2)
    log.seal()
    copy = copies.carry(log.stream, log.entry("D/0"))
    log.carry("D/0")
    checkpoint = log.checkpoint()
    assert checkpoint.low == 3
    log.copy(copy, seq=2)
    agree(log, log.cold(checkpoint))
    assert log.cold(checkpoint).entry("D/0").due == 42.0


def test_what_an_earlier_life_leaves(log: Kept) -> None:
    pending = list(log.store.entries().values())
    fresh, sealed = Kept(), Kept()
    for each in (fresh, sealed):
        each.put(control.write_epoch("F", at=0), control.write_term("F", 1, by="h", at=0), source="a", seq=1)
    assert [each.id for each in left_over(fresh.store, "E", pending) or ()] == ["E/0"]
    sealed.seal(epoch="F")
    assert [each.late for each in left_over(sealed.store, "E", pending) or ()] == [True]
    cold = sealed.cold(sealed.checkpoint())
    assert left_over(cold.store, "E", pending) is None, "what ran since would run again"


def test_of_a_tail_that_the_broker_lost_only_what_is_not_there_any_more(log: Kept) -> None:
    log.put(scheduled("lost"))
    pending = list(log.store.entries().values())
    now = Kept()
    for body in log.bodies[:-1]:
        now.raw(body)
    found = left_over(now.store, "E", pending)
    assert [(each.jid, each.late) for each in found or ()] == [("lost", True)]


def test_without_head_and_checkpoint_a_leader_that_carries_is_believed(log: Kept) -> None:
    copy = copies.carry(log.stream, log.entry("0"))
    headless = Kept(first=500)
    headless.copy(copy)
    assert headless.ids == {"0"}


def test_without_head_and_checkpoint_what_was_seen_to_end_stays_ended() -> None:
    headless = Kept(first=500)
    headless.put(scheduled("j"))
    copy = copies.carry(headless.stream, headless.entry("500"))
    headless.command(Op.DELETE, "j")
    headless.copy(copy)
    assert headless.ids == set()


def test_a_copy_gives_back_what_the_bytes_alone_do_not() -> None:
    """A rejected job's record: its error is in the headers of the message that brought it."""
    log = Kept(names.DEAD)
    headers = {"x-first-death-queue": "queue.mail", "x-first-death-reason": "rejected"}
    log.fold.fold(0, b'{"class":"C","args":[],"jid":"r"}', headers)
    log.bodies.append(b"[]")
    log.offset = 1
    log.lead()
    log.seal()
    log.put(dead("other"))
    log.carry("0")
    agree(log, log.cold(log.checkpoint()))
    assert log.entry("0").summary.error_class == "Rejected"


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'{"a":1.10}'])
def test_a_copy_of_any_bytes_can_be_read(body: bytes) -> None:
    log = Kept()
    log.raw(body)
    log.lead()
    log.seal()
    log.carry("0")
    agree(log, log.cold(log.checkpoint()))


def test_what_was_carried_and_deleted_is_found_again_where_it_was_carried_to(log: Kept) -> None:
    at = log.carry("0")
    epoch = log.store.facts().epoch
    found = entry_of(log.stream, Position(at, 0), log.bodies[at], {}, jid="j", entry="0", epoch=epoch)
    assert found == log.entry("0")


def test_a_loss_goes_on_record_and_into_checkpoints(log: Kept) -> None:
    log.put(control.write_trimmed("E", 1, first=5, entries=2, at=3.0), source="nobody", seq=1)
    assert log.store.facts().trimmed is None
    log.put(control.write_trimmed("E", 1, first=5, entries=2, at=3.0), source="a", seq=10)
    assert log.store.facts().trimmed == Trim(5, 2, 3.0)
    agree(log, log.cold(log.checkpoint()))


@pytest.mark.parametrize(
    "change",
    [{"type": "other"}, {"stream": "elsewhere"}, {"upto": -1}, {"term": None}, {"void": [[1, 2, 3]]}, {"sources": [1]}],
)
def test_a_checkpoint_that_is_not_well_formed_is_none(log: Kept, change: dict[str, Any]) -> None:
    written = json.loads(json.dumps(write_checkpoint(log.checkpoint(), by="h", at=1.0)))
    assert read_checkpoint(written) is not None
    assert read_checkpoint(written | change) is None


def test_a_trail_tells_a_log_from_one_that_lost_its_tail_and_ends_alike() -> None:
    bodies = [b"%d" % n for n in range(2 * LENGTH)]
    log = [step(n, body) for n, body in enumerate(bodies)]
    trail = continued((), log)
    assert trail == tuple(log[-LENGTH:])
    assert agrees(trail, log[-LENGTH:])
    assert agrees(trail, log[-3:]), "retention took the rest"
    assert agrees((), []), "a checkpoint of an earlier version"
    another = [*log[-LENGTH:-2], step(log[-2].offset, b"another"), log[-1]]
    for other in (another, log[-LENGTH:-1], [each for each in log[-LENGTH:] if each != log[-2]], []):
        assert not agrees(trail, other)


def test_a_trail_that_leads_further_than_was_read_stays_until_that_is_passed() -> None:
    ahead = tuple(step(n, b"%d" % n) for n in range(3, 6))
    assert continued(ahead, [step(n, b"other") for n in range(2, 6)]) == ahead
    assert continued(ahead, [step(6, b"6")]) == (*ahead, step(6, b"6"))
