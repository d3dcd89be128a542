"""The delayed view on disk: in bulk or entry by entry, without indexes or with them, it holds what the fold says."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqpjobs.model import control, names
from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.pending import Claim, Pending
from amqpjobs.model.protocol import Again, Command, How, Op, Position, Target
from amqpjobs.streams.entry_table import BUFFERED, INDEXES, MOST_OFFSET, EntryTable, id_of, number_of
from amqpjobs.streams.follow import Message
from amqpjobs.streams.sqlite_store import FIRST
from amqpjobs.streams.views import LONG, DelayedView

JIDS = st.sampled_from(["a", "b", "c"])
UNTIL = st.sampled_from([None, 1.0, 3.0, 60.0])
IDS = st.sampled_from(["2", "3", "3:1", "4", "5:1", "6", "7", "9", "old/3", "old/4", "02", "3:0", "x"])


def entry(jid: str, number: int, reschedule: bool) -> dict[str, Any]:
    times = {"scheduled_at": number * 7 % 5, "retry_at": number, "died_at": number % 4, "failed_at": number % 4}
    job = {"class": f"C{number % 2}", "args": [number % 3], "queue": "q"}
    return {"jid": jid, "retry_count": number % 3, "reschedule": reschedule, "job": job} | times


ENTRIES = st.builds(entry, JIDS, st.integers(0, 9), st.booleans())
COMMANDS = st.builds(
    lambda uuid, op, jid, id_: control.write_command(
        Command(uuid=uuid, op=op, targets=(Target(jid, id_),), at=50.0, by="ann", due=3.0)
    ),
    st.sampled_from("uvw"), st.sampled_from([Op.DELETE, Op.TRIGGER, Op.RESCHEDULE, Op.KILL]), JIDS,
    st.one_of(st.none(), IDS),
)  # fmt: skip
CONTROLS = st.one_of(
    st.builds(lambda ids, until: control.write_claimed("E", 1, ids, until=until), st.lists(IDS), UNTIL),
    st.builds(
        lambda ids, how: control.write_settled("E", 1, ids, how, by="l", at=1.0),
        st.lists(IDS), st.sampled_from([How.ENQUEUED, How.KILLED]),
    ),
    st.builds(
        lambda id_, jid, number: control.write_again(
            Again(id_, jid, 1.0, False, None, json.dumps(entry(jid, number, False)).encode())
        ),
        st.sampled_from(["old/3", "old/4"]), JIDS, st.integers(0, 9),
    ),
)  # fmt: skip


def body(entries: Sequence[dict[str, Any]], seq: int) -> bytes:
    """One message; ours where it controls."""
    ours = any(each.get("type") in ("claimed", "settled", "again", "epoch") for each in entries)
    items = [dict(each) for each in entries]
    if ours:
        items[0] |= {"from": "leader", "seq": seq}
    return json.dumps(items if len(items) != 1 else items[0]).encode()


MESSAGES = st.lists(
    st.one_of(
        st.lists(ENTRIES, min_size=1, max_size=3),
        st.lists(COMMANDS, min_size=1, max_size=1),
        st.lists(CONTROLS, min_size=1, max_size=2),
    ),
    max_size=25,
)
HEAD = [control.write_epoch("E", at=0.0), control.write_term("E", 1, by="l", at=0.0)]


def log_of(messages: Sequence[Sequence[dict[str, Any]]]) -> list[bytes]:
    return [body(each, number + 1) for number, each in enumerate([HEAD, *messages])]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def plain(stream: str, log: Sequence[bytes]) -> MemoryStore:
    store = MemoryStore()
    fold = DelayedSet(stream, store)
    for offset, each in enumerate(log):
        fold.fold(offset, each)
    return store


def check(view: DelayedView, store: MemoryStore) -> None:
    found = {each.id: each for _, each in view.store.all_after(FIRST, 1000)}
    assert found == store.entries()
    assert view.count() == len(found)
    counts = view.store.db.execute("SELECT cls, queue, n FROM counts")
    assert {(cls, queue): n for cls, queue, n in counts} == Counter(
        (each.summary.cls, each.summary.queue) for each in found.values()
    )
    assert view.facts() == store.facts()
    for jid in "abc":
        assert view.store.of_jid(jid) == store.of_jid(jid)
    for uuid in "uvw":
        assert view.verdicts(uuid) == store.verdicts(uuid)
    assert view.store.last_seq("leader") == store.last_seq("leader")
    assert all(view.store.get(id_) == each for id_, each in found.items())


@pytest.mark.parametrize("stream", names.DELAYED)
@settings(deadline=None, max_examples=30)
@given(messages=MESSAGES, sizes=st.lists(st.integers(1, 6), min_size=1), load=st.booleans(), again=st.booleans())
def test_every_way_of_folding_gives_the_same(
    stream: str, messages: list[list[dict[str, Any]]], sizes: list[int], load: bool, again: bool
) -> None:
    log = log_of(messages)
    with tempfile.TemporaryDirectory() as name:
        view = DelayedView(Path(name), stream)
        if load:
            view.expect(10**9)
        at, turn = 0, 0
        while at < len(log):
            size = sizes[turn % len(sizes)]
            view.fold([Message(at + n, each) for n, each in enumerate(log[at : at + size])])
            at, turn = at + size, turn + 1
            if again:
                view.close()
                view = DelayedView(Path(name), stream)
        view.arrive()
        try:
            check(view, plain(stream, log))
        finally:
            view.close()


def test_a_fold_that_fails_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    log = log_of([[entry("a", 1, False)], [entry("b", 2, False)]])
    view.fold([Message(0, log[0]), Message(1, log[1])])
    with monkeypatch.context() as patch:
        patch.setattr(view.store, "flush", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            view.fold([Message(2, log[2])])
    check(view, plain(names.SCHEDULED, log[:2]))
    view.fold([Message(2, log[2])])
    check(view, plain(names.SCHEDULED, log))
    view.close()


@pytest.mark.parametrize("gone_in", ["a question", "a fold"])
def test_folds_that_the_disk_undid_are_never_passed_over(
    gone_in: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends the transaction in which several folds wait: what follows must not be folded as if they had not.

    Who begins anew, from the position that is left, folds them after all.
    """
    monkeypatch.setattr("amqpjobs.streams.view_file.COMMIT_EVERY", 3600.0)
    view = DelayedView(folder, names.SCHEDULED)
    log = log_of([[entry(name, 1, False)] for name in "abc"])
    view.fold([Message(0, log[0])])
    view.checkpoint()  # commits
    view.fold([Message(1, log[1])])
    if gone_in == "a question":
        view.store.db.execute("ROLLBACK")
    else:
        with monkeypatch.context() as patch:
            patch.setattr(view.store, "flush", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                view.fold([Message(2, log[2])])
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="undone by the disk"):
            view.fold([Message(3, log[3])])
    view.close()
    view = DelayedView(folder, names.SCHEDULED)
    position = view.position()
    assert position is not None
    assert position[0] == 0
    view.fold([Message(n, log[n]) for n in (1, 2, 3)])
    check(view, plain(names.SCHEDULED, log))
    view.close()


def many(count: int) -> list[Message]:
    job = {"class": "C", "args": ["x" * 50]}
    return [
        Message(n, json.dumps({"jid": f"{n:x}", "scheduled_at": n * 7919 % count, "job": job}).encode())
        for n in range(count)
    ]


def statements(view: DelayedView, messages: list[Message]) -> int:
    seen: list[str] = []
    view.store.db.set_trace_callback(seen.append)
    view.fold(messages)
    view.store.db.set_trace_callback(None)
    return len(seen)


def test_single_entries_are_written_many_at_a_time(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    assert statements(view, many(2000)) < 60
    assert view.count() == 2000
    view.close()


def test_what_waits_in_memory_is_bounded(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    array = b"[" + b",".join(each.body for each in many(3 * BUFFERED)) + b"]"
    most = 0
    put = view.store.put

    def watched(entry: Pending) -> None:
        nonlocal most
        put(entry)
        most = max(most, len(view.store._fresh))

    view.store.put = watched  # type: ignore[method-assign]
    view.fold([Message(0, array)])
    assert view.count() == 3 * BUFFERED
    assert most < BUFFERED
    view.close()


def plan(view: DelayedView, question: str, *fields: Any) -> str:
    return " ".join(row[3] for row in view.store.db.execute("EXPLAIN QUERY PLAN " + question, fields))


def leaders_questions(view: DelayedView) -> list[str]:
    seen: list[str] = []
    view.store.db.set_trace_callback(seen.append)
    view.store.due(5.0, 10)
    view.store.next_due()
    view.store.claimed(10)
    view.store.held(["7"], Claim(1, "s"))
    view.store.low()
    view.store.oldest(10)
    view.store.count_below(5)
    view.store.of_jid("a")
    view.store.get("7")
    view.store.get("old/7")
    view.store.db.set_trace_callback(None)
    return [question for question in seen if question.startswith("SELECT")]


def test_what_the_leader_asks_is_answered_by_an_index(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    view.fold(many(200))
    asked = leaders_questions(view)
    assert len(asked) >= 8
    for question in asked:
        found = plan(view, question)
        for whole in ("entries_claimed", "entries_pos"):  # read in its order, until there are enough
            found = found.replace(f"SCAN entries USING INDEX {whole}", "")
        assert "SCAN entries" not in found, (question, found)
        assert "TEMP B-TREE" not in found or "entries_claimed" in found or "entries_jid" in found, (question, found)
    view.close()


def test_a_long_log_is_loaded_without_indexes_and_a_short_one_with_them(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    view.fold(many(50))
    view.expect(LONG)
    assert indexes(view) >= set(INDEXES)
    view.expect(LONG + 1)
    assert not indexes(view) & set(INDEXES)
    view.arrive()
    assert indexes(view) >= set(INDEXES)
    view.close()


def test_what_is_large_already_keeps_its_indexes(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    view.fold(many(LONG + 10))
    view.expect(LONG + 1)
    assert indexes(view) >= set(INDEXES)
    view.close()


def test_a_jid_that_is_asked_for_while_loading_gets_its_index(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    view.expect(10**6)
    view.fold([Message(0, json.dumps(entry("a", 1, True)).encode())])
    assert "entries_jid" in indexes(view)
    view.close()


def indexes(view: DelayedView) -> set[str]:
    return {name for (name,) in view.store.db.execute("SELECT name FROM sqlite_master WHERE type='index'")}


@given(offset=st.integers(0, 2**63), item=st.integers(0, 2**25))
def test_numbers_lead_back_to_identities(offset: int, item: int) -> None:
    id_ = Position(offset, item).id
    number = number_of(id_)
    if offset < MOST_OFFSET and item < 2**20:
        assert number is not None
        assert id_of(number, None) == id_
    else:
        assert number is None


@pytest.mark.parametrize("id_", ["", "x", "01", "1:0", "1:", ":1", "1:01", "e/1", "-1", "1 ", "²", "1_0", "9" * 5000])
def test_what_is_no_position_of_this_stream_has_no_number(id_: str) -> None:
    assert number_of(id_) is None


def test_identities_beyond_the_numbers_are_kept_all_the_same(folder: Path) -> None:
    view = DelayedView(folder, names.SCHEDULED)
    job = {"jid": "a", "scheduled_at": 1, "job": {"class": "C"}}
    view.fold([Message(MOST_OFFSET + 5, json.dumps(job).encode())])
    table: EntryTable = view.store
    found = table.get(str(MOST_OFFSET + 5))
    assert found is not None
    assert found.pos == Position(MOST_OFFSET + 5, 0)
    assert table.of_jid("a") == [found]
    table.remove(found.id)
    assert table.count() == 0
    view.close()
