"""The fold of `controls`: what is in force after any sequence of entries, well formed or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import controls, text
from amqpjobs.model.controls import ControlLog, Controls, Order
from tests.unit.odd import SCALARS, VALUES, maybe, objects

QUEUES = st.sampled_from(["default", "low", "a:b"])
PROCESSES = st.sampled_from(["*", "n1", "host:1:production"])
JIDS = st.sampled_from(["a", "b", "c"])
TIMES = st.integers(0, 200_000).map(float)

ENTRIES = st.one_of(
    st.builds(lambda queue, at: controls.write_pause(queue, by="ann", at=at), QUEUES, TIMES),
    st.builds(lambda queue, at: controls.write_resume(queue, by="ann", at=at), QUEUES, TIMES),
    st.builds(
        lambda op, process, at: controls.write_order(op, process, by="ann", at=at),
        st.sampled_from(["quiet", "stop"]),
        PROCESSES,
        TIMES,
    ),
    st.builds(lambda jid, at: controls.write_cancel(jid, by="ann", at=at), JIDS, TIMES),
)
ODD_ENTRIES = objects(
    type=maybe(st.sampled_from(["control", "controls_snapshot"])),
    op=maybe(st.sampled_from(["pause", "resume", "quiet", "stop", "cancel"])),
    queue=maybe(QUEUES),
    process=maybe(PROCESSES),
    jid=maybe(JIDS),
    at=maybe(TIMES),
    paused=maybe(st.lists(VALUES, max_size=3)),
    orders=maybe(st.lists(VALUES, max_size=3)),
    cancelled=maybe(st.lists(VALUES, max_size=3)),
    after=maybe(SCALARS),
)
NOTHING = Controls()


def folded(entries: list[Any], start: Controls = NOTHING) -> Controls:
    for entry in entries:
        start = controls.apply(start, entry)
    return start


def body(entry: dict[str, Any], **more: Any) -> bytes:
    return text.dump(entry | more)


@given(st.lists(ENTRIES, max_size=20), st.lists(ENTRIES, max_size=20), TIMES)
def test_a_snapshot_at_any_point_equals_the_fold_of_all_before(before: list[Any], after: list[Any], at: float) -> None:
    whole = folded(before)
    taken = text.parse(text.dump(controls.snapshot(whole, at)))
    assert controls.apply(NOTHING, taken) == controls.forget(whole, at - controls.DAY)
    assert controls.apply(folded(after), taken) == controls.forget(whole, at - controls.DAY), "it forgets what it knew"
    assert folded(after, controls.apply(NOTHING, taken)) == folded(after, controls.forget(whole, at - controls.DAY))


@given(st.lists(st.one_of(ENTRIES, ODD_ENTRIES, VALUES), max_size=12))
def test_nothing_raises_and_the_pieces_agree_with_the_whole(entries: list[Any]) -> None:
    one_by_one = folded(entries)
    assert controls.apply_all(NOTHING, entries) == one_by_one
    for order in one_by_one.orders:
        order.concerns(nonce="n1", identity="host:1:production", boot_at=0.0)
    log = ControlLog()
    for offset, entry in enumerate(entries):
        log.fold(offset, text.dump([entry]))
    text.parse(text.dump(controls.snapshot(log.controls, 10.0, after=3)))


@given(st.lists(ENTRIES, max_size=5), VALUES)
def test_what_is_no_control_has_no_effect(entries: list[Any], value: Any) -> None:
    before = folded(entries)
    assert controls.apply(before, value) is before
    if isinstance(value, dict):
        assert controls.apply(before, value | {"type": "something_new"}) is before


@given(st.binary(max_size=60))
def test_no_message_raises(raw: bytes) -> None:
    ControlLog().fold(0, raw)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "control", "op": "pause"},
        {"type": "control", "op": "pause", "queue": "a/b", "at": 1},
        {"type": "control", "op": "pause", "queue": 5, "at": 1},
        {"type": "control", "op": "quiet", "process": "*"},
        {"type": "control", "op": "quiet", "process": "*", "at": "soon"},
        {"type": "control", "op": "stop", "process": "", "at": 1},
        {"type": "control", "op": "cancel", "jid": "", "at": 1},
        {"type": "control", "op": "cancel", "jid": "a"},
        {"type": "control", "op": "explode", "jid": "a", "at": 1},
        {"type": "controls_snapshot", "paused": [], "orders": [], "at": 1},
        {"type": "controls_snapshot", "paused": "default", "orders": [], "cancelled": [], "at": 1},
    ],
)
def test_what_is_not_well_formed_has_no_effect(entry: dict[str, Any]) -> None:
    before = folded([controls.write_pause("low", by="ann", at=1.0), controls.write_cancel("j", by="ann", at=2.0)])
    assert controls.apply(before, entry) is before


def test_what_each_entry_does() -> None:
    held = folded(
        [
            controls.write_pause("default", by="ann", at=1.0),
            controls.write_pause("low", by="ann", at=2.0),
            controls.write_resume("default", by="ann", at=3.0),
            controls.write_order("quiet", "n1", by="ann", at=5.0),
            controls.write_order("quiet", "n1", by="ann", at=4.0),
            controls.write_order("stop", "*", by="ann", at=6.0),
            controls.write_cancel("j", by="ann", at=7.0),
        ]
    )
    assert held == Controls(frozenset({"low"}), (Order("quiet", "n1", 5.0), Order("stop", "*", 6.0)), {"j": 7.0})
    assert controls.forget(held, 6.0) == Controls(frozenset({"low"}), (Order("stop", "*", 6.0),), {"j": 7.0})
    assert controls.forget(held, 8.0) == Controls(frozenset({"low"}))


def test_an_order_concerns_the_named_processes_that_were_there() -> None:
    me = {"nonce": "n1", "identity": "host:1:production", "boot_at": 100.0}
    for name in ("*", "n1", "host:1:production"):
        assert Order("stop", name, 101.0).concerns(**me)  # type: ignore[arg-type]
        assert not Order("stop", name, 99.0).concerns(**me), "an old order stops none that starts later"  # type: ignore[arg-type]
    assert not Order("stop", "host", 101.0).concerns(**me)  # type: ignore[arg-type]


def test_only_the_newest_cancellations_fit_a_snapshot() -> None:
    many = {f"j{number}": float(number) for number in range(controls.MOST_CANCELLED + 5)}
    taken = controls.apply(NOTHING, controls.snapshot(Controls(cancelled=many), 50_000.0))
    assert len(taken.cancelled) == controls.MOST_CANCELLED
    assert "j4" not in taken.cancelled
    assert "j5" in taken.cancelled


def test_a_repeated_message_counts_once() -> None:
    log = ControlLog()
    log.fold(0, body(controls.write_pause("default", by="ann", at=1.0), **{"from": "cli", "seq": 1}))
    log.fold(1, body(controls.write_resume("default", by="bob", at=2.0), **{"from": "web", "seq": 1}))
    log.fold(2, body(controls.write_pause("default", by="ann", at=1.0), **{"from": "cli", "seq": 1}))
    assert log.controls.paused == frozenset()


def test_a_snapshot_that_missed_a_control_is_not_taken_and_another_is_due() -> None:
    log = ControlLog()
    log.fold(4, body(controls.write_pause("low", by="ann", at=1.0)))
    seen = log.controls
    log.fold(7, body(controls.write_pause("default", by="ann", at=2.0)))
    log.fold(8, body(controls.snapshot(seen, 2.0, after=6)))
    assert log.controls.paused == {"low", "default"}
    assert log.changed
    log.fold(9, body(controls.snapshot(log.controls, 3.0, after=8)))
    assert log.controls.paused == {"low", "default"}
    assert not log.changed


def test_what_held_goes_on_to_hold_in_a_stream_made_anew() -> None:
    log = ControlLog()
    log.fold(100, body(controls.write_pause("low", by="ann", at=1.0), **{"from": "cli", "seq": 9}))
    log.fold(101, body(controls.snapshot(log.controls, 2.0, after=100)))
    log.renew()
    assert log.changed
    log.fold(0, body(controls.snapshot(log.controls, 3.0, after=-1)))
    log.fold(1, body(controls.write_pause("default", by="ann", at=4.0), **{"from": "cli", "seq": 1}))
    assert log.controls.paused == {"low", "default"}
