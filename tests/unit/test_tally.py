"""The count of what ran: the same in any grouping, nothing doubled, nothing silently left out (MET-02, UI-07)."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqpjobs.model import tally, text
from amqpjobs.streams.follow import Message
from amqpjobs.streams.tally_store import Counted, LatestWait, TallyStore

NOON = 1_795_780_800.0
"""A noon, UTC."""


class SetClock:
    def __init__(self, now: float) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now

    def steady(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


def metric(status: str = "success", at: float = NOON, **more: Any) -> dict[str, Any]:
    return {"type": "job_metric", "timestamp": at, "job_class": "Send", "queue": "default", "status": status, **more}


def count(*bodies: Any) -> tally.Tally:
    return tally.tally([body if isinstance(body, bytes) else text.dump(body) for body in bodies], {})


def day(found: tally.Tally, at: float = NOON) -> tuple[int, int]:
    sums = found.days.get(int(at // tally.DAY), tally.Sums())
    return sums.count, sums.failed


def test_one_and_many_entries_a_message_success_and_failure() -> None:
    found = count(metric(), [metric(), metric("failed"), metric(at=NOON + 60)], [])
    assert day(found) == (4, 1)
    first = found.minutes[tally.Key(int(NOON // 60), "Send", "default")]
    assert (first.count, first.failed) == (3, 1)
    assert found.unreadable == 0


def test_the_day_is_the_utc_day() -> None:
    midnight = NOON + 12 * 3600
    found = count(metric(at=midnight - 0.001), metric(at=midnight))
    assert day(found, NOON) == (1, 0)
    assert day(found, midnight) == (1, 0)


def test_durations_are_summed_and_those_that_are_no_number_left_out_but_the_run_counts() -> None:
    found = count(
        metric(duration_ms=10.5, wait_ms=3),
        b'{"timestamp": %d, "job_class": "Send", "status": "success", "duration_ms": NaN, "wait_ms": Infinity}' % NOON,
        metric(duration_ms=-4),
        metric(duration_ms=1e300),
        metric(duration_ms="soon"),
    )
    sums = found.minutes[tally.Key(int(NOON // 60), "Send", "default")]
    assert sums.count == 5
    assert sums.timed == 3
    assert sums.run_us == 10_500 + 0 + int(tally.LONGEST_MS * 1000)
    assert (sums.waited, sums.wait_us, sums.wait_max_us) == (1, 3000, 3000)


def test_what_cannot_be_read_is_counted_as_such() -> None:
    found = count(b"{", b"", b"\xff", b"7", {"timestamp": "soon"}, [metric(), 5, {}], metric(at=1e300), metric(at=-1e9))
    assert found.unreadable == 9
    assert day(found) == (1, 0)


def test_entries_of_ours_that_are_no_metrics_are_no_mistake() -> None:
    assert count({"type": "marker", "nonce": "x"}).unreadable == 0


def test_a_repeated_message_counts_once_and_a_foreign_one_always() -> None:
    ours = [{**metric(), "from": "w1", "seq": 1}, metric("failed")]
    found = count(ours, ours, [{**metric(), "from": "w2", "seq": 1}], metric(), metric())
    assert day(found) == (5, 1)
    assert found.repeated == 1
    again = tally.tally([text.dump(ours)], found.seqs)
    assert day(again) == (0, 0)


@pytest.mark.parametrize("seq", [True, 0, -1, 1.0, "1", None, 2**80])
def test_a_number_that_is_none_of_ours_hides_nothing(seq: Any) -> None:
    odd = {**metric(), "from": "w1", "seq": seq}
    assert day(count(odd, odd)) == (2, 0)


NAMES = st.one_of(st.sampled_from(["Send", "Bill", "\ud800", "n" * 400]), st.text("aü<\x00\r", max_size=5))
METRICS = st.fixed_dictionaries(
    {
        "timestamp": st.one_of(st.floats(NOON, NOON + 200_000), st.sampled_from([0, 1e300, "x", None, True])),
        "job_class": NAMES,
        "queue": NAMES,
        "status": st.sampled_from(["success", "failed", "failed", "?"]),
        "duration_ms": st.one_of(st.floats(), st.integers(), st.none()),
        "wait_ms": st.one_of(st.floats(), st.none()),
    }
)
OURS = st.builds(
    lambda entries, source, seq: text.dump([{**entries[0], "from": source, "seq": seq}, *entries[1:]]),
    st.lists(METRICS, min_size=1, max_size=3),
    st.sampled_from(["w1", "w2", "\udfff"]),
    st.integers(1, 5),
)
BODIES = st.lists(st.one_of(OURS, METRICS.map(text.dump), st.binary(max_size=20)), max_size=12)


@settings(deadline=None)
@given(BODIES, st.lists(st.integers(0, 12), max_size=4))
def test_any_grouping_counts_the_same(bodies: list[bytes], cuts: list[int]) -> None:
    whole = tally.tally(bodies, {})
    parts = tally.Tally()
    edges = [0, *sorted(min(cut, len(bodies)) for cut in cuts), len(bodies)]
    for start, end in itertools.pairwise(edges):
        parts.merge(tally.tally(bodies[start:end], parts.seqs))
    assert parts == whole


def messages(bodies: list[bytes], first: int = 0) -> list[Message]:
    return [Message(first + number, body) for number, body in enumerate(bodies)]


def contents(store: TallyStore) -> list[Any]:
    db = store._db
    tables = ("minutes", "days", "waits", "seqs", "meta", "versions", "outcomes")
    rows = [sorted(db.execute(f"SELECT * FROM {table} WHERE 1").fetchall(), key=repr) for table in tables]
    return [*rows, *(list(store.spreads(size, 0)) for size in (tally.MINUTE, tally.HOUR))]


@settings(deadline=None, max_examples=60)
@given(BODIES, st.data())
def test_the_store_goes_on_where_a_crash_left_it(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], data: st.DataObject
) -> None:
    """Opened again after any batch, and a batch that fails half way leaves nothing of itself."""
    clock = SetClock(NOON)
    plain = TallyStore(tmp_path_factory.mktemp("plain"), clock, 3600)
    crashed_in = tmp_path_factory.mktemp("crashed")
    store = TallyStore(crashed_in, clock, 3600)
    left = messages(bodies)
    plain.fold(left)
    while left:
        size = data.draw(st.integers(1, len(left)))
        if data.draw(st.booleans()):
            with pytest.raises(Crash):
                _fold_and_crash(store, left[:size])
            store.close()
            store = TallyStore(crashed_in, clock, 3600)
        at = store.position()
        assert at is None or at[0] == left[0].offset - 1
        store.fold(left[:size])
        left = left[size:]
    assert contents(store) == contents(plain)
    store.close()
    plain.close()


class Crash(Exception):
    pass


def _fold_and_crash(store: TallyStore, batch: list[Message]) -> None:
    """The sums are written, the position is not: what a kill between the two leaves is rolled back."""

    def die(values: Any) -> None:
        raise Crash

    store._set = die  # type: ignore[method-assign]
    store.fold(batch)


def test_the_store_answers_what_the_page_asks(tmp_path: Path) -> None:
    clock = SetClock(NOON + 100)
    store = TallyStore(tmp_path, clock, 3600)
    assert store.total() == Counted(0, 0)
    assert store.since() == store.began == NOON + 100 - 3600
    bodies = [
        metric(at=NOON, duration_ms=500, wait_ms=9),
        metric("failed", at=NOON + 1, duration_ms=1500, wait_ms=7),
        metric(at=NOON - 86_400, queue="low"),
        metric(at=NOON + 2),
    ]
    store.fold(messages([text.dump(body) for body in bodies]))
    assert store.day(NOON) == Counted(3, 1)
    assert store.total() == Counted(4, 1)
    assert store.queues(NOON - 60)["default"] == (3, 1, 1.0)
    assert "low" not in store.queues(NOON - 60)
    assert store.waits() == {"default": LatestWait(NOON + 1, 0.007)}
    store.forget(NOON - 60)
    assert "low" not in store.queues(0)
    assert store.total() == Counted(4, 1)
    store.close()


def test_the_store_tells_spreads_versions_and_runs_of_one_job(tmp_path: Path) -> None:
    clock = SetClock(NOON + 7200)
    store = TallyStore(tmp_path, clock, 86_400)
    runs = [
        metric(at=NOON + 30 * n, duration_ms=n, wait_ms=5, jid=f"j{n % 3}", code_version=f"v{n // 4}") for n in range(8)
    ]
    store.fold(messages([text.dump(runs[:5]), text.dump([*runs[5:], metric("cancelled", jid="j1")])]))
    minutes = list(store.spreads(tally.MINUTE, NOON))
    assert [(start, spread.count) for start, _, spread in minutes] == [(NOON + 60 * n, 2) for n in range(4)]
    [(start, cls, hour)] = store.spreads(tally.HOUR, NOON)
    assert (start, cls, hour.count, sum(hour.run.values()), sum(hour.wait.values())) == (NOON, "Send", 8, 8, 8)
    assert list(store.spreads(tally.HOUR, NOON, "Sen")) == []
    assert store.versions("Send", 0) == [(NOON, "v0"), (NOON + 120, "v1")]
    assert [(run.status, run.run_us) for run in store.outcomes("j1", 10)] == [
        ("success", 1000), ("success", 4000), ("success", 7000), ("cancelled", None),
    ]  # fmt: skip
    assert store.classes("default", NOON) == [("Send", 8, 0)]
    assert store.days(NOON + 86_400, 2) == {NOON // 86_400 * 86_400: (8, 0)}
    assert store.days(NOON + 86_400, 1) == {}
    clock.now += 9 * 3600
    store.forget(NOON - 60)
    assert list(store.spreads(tally.MINUTE, 0)) == []
    assert len(list(store.spreads(tally.HOUR, 0))) == 1
    store.close()


def test_a_stream_made_anew_begins_a_new_count_and_a_trim_is_told(tmp_path: Path) -> None:
    store = TallyStore(tmp_path, SetClock(NOON), 3600)
    store.fold(messages([text.dump({**metric(), "from": "w", "seq": 1})]))
    store.trimmed(50)
    assert store.gap_at() == NOON
    assert store.total() == Counted(1, 0)
    store.renew()
    assert store.position() is None
    assert store.total() == Counted(0, 0)
    assert store.renewed_at() == NOON
    store.fold(messages([text.dump({**metric(), "from": "w", "seq": 1})]))
    assert store.total() == Counted(1, 0)
    store.close()


@pytest.mark.parametrize("damage", ["broken", "version"])
def test_a_file_that_cannot_serve_is_made_anew(tmp_path: Path, damage: str) -> None:
    store = TallyStore(tmp_path, SetClock(NOON), 3600)
    store.fold(messages([text.dump(metric())]))
    store.close()
    path = tmp_path / "job_metrics.db"
    if damage == "broken":
        path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    else:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE meta SET value = 0 WHERE name = 'version'")
    store = TallyStore(tmp_path, SetClock(NOON), 3600)
    assert store.position() is None
    assert store.total() == Counted(0, 0)
    store.close()
