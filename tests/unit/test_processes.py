"""Who is there, told from heartbeats by when they arrived (HB-01, HB-02)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import reading
from amqpjobs.model.messages import Heartbeat
from amqpjobs.model.processes import GONE_AFTER, STALE_AFTER, Processes


def beat(nonce: str | None = "a", identity: str = "web-1:1:production", **more: Any) -> Heartbeat:
    found = reading.read_heartbeat({"identity": identity, "nonce": nonce, "busy": 2, "concurrency": 5, **more})
    assert isinstance(found, Heartbeat)
    return found


def there(processes: Processes, now: float) -> list[str | None]:
    return [process.beat.nonce for process in processes.present(now)]


def test_three_containers_with_one_name_are_three_rows_and_a_restarted_one_replaces_itself() -> None:
    processes = Processes()
    for nonce in "abc":
        processes.arrive(beat(nonce), 0.0)
    assert there(processes, 1.0) == ["a", "b", "c"]
    assert sum(process.beat.busy for process in processes.present(1.0)) == 6

    processes.arrive(beat("b", state="stopped"), 5.0)
    processes.arrive(beat("d"), 6.0)
    assert there(processes, 6.0) == ["a", "c", "d"]


def test_a_killed_process_is_stale_then_gone_and_a_healed_one_returns() -> None:
    processes = Processes()
    processes.arrive(beat(), 100.0)
    assert processes.present(100.0 + STALE_AFTER - 1)[0].state(100.0 + STALE_AFTER - 1) == "fresh"
    assert processes.present(100.0 + STALE_AFTER)[0].state(100.0 + STALE_AFTER) == "stale"
    assert there(processes, 100.0 + GONE_AFTER - 0.1) == ["a"]
    assert there(processes, 100.0 + GONE_AFTER) == []

    processes.arrive(beat(), 220.0)
    assert there(processes, 221.0) == ["a"]
    assert processes.present(221.0)[0].first_seen == 220.0


def test_the_clock_of_its_machine_is_of_no_account() -> None:
    processes = Processes()
    processes.arrive(beat("old", beat=946684800), 0.0)
    processes.arrive(beat("new", beat=4102444800), 0.0)
    assert there(processes, 59.0) == ["new", "old"]
    assert there(processes, 60.0) == []


def test_a_heartbeat_that_was_overtaken_by_its_goodbye_changes_nothing() -> None:
    processes = Processes()
    processes.arrive(beat(), 0.0)
    processes.arrive(beat(state="stopped"), 1.0)
    processes.arrive(beat(), 1.1)
    assert there(processes, 2.0) == []


def test_a_foreign_worker_without_a_nonce_may_say_goodbye_and_come_again() -> None:
    processes = Processes()
    processes.arrive(beat(None), 0.0)
    processes.arrive(beat(None, state="stopped"), 1.0)
    assert there(processes, 1.0) == []
    processes.arrive(beat(None), 2.0)
    assert there(processes, 2.0) == [None]


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 40)), max_size=30)


@given(EVENTS, st.floats(0, 120))
def test_present_is_exactly_who_spoke_last_within_a_minute_and_has_not_left(
    events: list[tuple[str, bool, float]], later: float
) -> None:
    processes, now = Processes(), 0.0
    last: dict[str, float] = {}
    left: dict[str, float] = {}
    for nonce, goodbye, pause in events:
        now += pause
        processes.arrive(beat(nonce, state="stopped" if goodbye else "running"), now)
        if goodbye:
            left[nonce] = now
            last.pop(nonce, None)
        elif now - left.get(nonce, -GONE_AFTER + now) >= GONE_AFTER:
            last[nonce] = now
    now += later
    assert {*there(processes, now)} == {nonce for nonce, seen in last.items() if now - seen < GONE_AFTER}
