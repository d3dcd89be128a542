"""The tables of tracked jobs: what stands in a job's row and what beside it, and which commands are known."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from amqpjobs.model import command_names, control, text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Word
from amqpjobs.model.tracked_commands import Command, Dispatch, Report, Take
from amqpjobs.model.tracked_fold import TrackedSet
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.streams import tracked_jobs, tracked_lines
from amqpjobs.streams.follow import Message
from amqpjobs.streams.tracked_rows import INLINE
from amqpjobs.streams.tracked_view import TrackedView
from tests.unit.tracked import NOW, Log, Statements


@pytest.fixture
def log() -> Log:
    return Log()


SMALL, LARGE = b'"s"', b'"%s"' % (b"x" * INLINE)


def from_disk(log: Log, id_: int) -> tuple[bytes, bytes]:
    log.store.flush()
    log.store.rolled_back()
    job = log.now_of(log.store.all_after(id_ - 1, 1)[0])
    return job.data, job.output


def beside(log: Log) -> int:
    return int(log.store.db.execute("SELECT count(*) FROM payloads").fetchone()[0])


@pytest.mark.parametrize("data", [SMALL, LARGE])
@pytest.mark.parametrize("outputs", [[SMALL], [LARGE], [SMALL, LARGE, SMALL], [LARGE, SMALL, LARGE]])
def test_data_and_output_are_kept_whatever_their_length(data: bytes, outputs: list[bytes]) -> None:
    log = Log()
    job = log.do(Dispatch("q", data)).job
    assert job is not None
    assert from_disk(log, job.id) == (data, b"null")
    log.do(Take("q"))
    for output in outputs:
        log.do(Report(job.id, output=output))
        assert from_disk(log, job.id) == (data, output)
        assert beside(log) == (LARGE in (data, output))
    log.store.remove(log.now_of(job))
    assert beside(log) == 0


def test_a_dated_command_is_judged_once_wherever_it_stands_among_the_others() -> None:
    log = Log()
    names = [command_names.dated(NOW + n, "run", n) for n in (5, 3, 9, 4)]
    jobs = [log.do(Dispatch("q"), name).job for name in names]
    assert len({job.id for job in jobs if job}) == 4
    log.store.flush()
    log.store.rolled_back()
    for name, job in zip(names, jobs, strict=True):
        judged = log.do(Dispatch("q"), name)
        assert (judged.verdict.word, judged.job) == (Word.CREATED, job)
    assert command_names.is_dated(names[0])
    assert not any(map(command_names.is_dated, ("", "mine", "jid:x", "0" * 32)))


def test_what_did_not_commit_does_not_count_as_judged() -> None:
    log = Log()
    log.store.flush()
    log.store.db.execute("BEGIN")
    name = command_names.dated(NOW, "run", 1)
    log.do(Dispatch("q"), name)
    log.store.flush()
    log.store.db.execute("ROLLBACK")
    log.store.rolled_back()
    assert log.do(Dispatch("q", b"2"), name).verdict.word is Word.CREATED


def test_the_very_first_message_of_a_stream_may_be_a_job() -> None:
    log = Log(queue="")
    log.fold = TrackedSet(log.store)
    log.offset = -1
    (judged,) = log.message(write_command(Command("u", NOW, Dispatch("q"))))
    assert judged.verdict.job == 0
    log.store.flush()
    log.store.rolled_back()
    assert log.get(0) == judged.job


def test_a_life_that_ends_at_once_is_written_once(log: Log) -> None:
    log.store.flush()
    with Statements(log.store.db) as seen:
        for _ in range(50):
            job = log.dispatch()
            log.take()
            log.do(Report(job.id, status=State.COMPLETED))
        log.store.flush()
    assert sum(" jobs " in each for each in seen) < 5, seen
    log.store.rolled_back()
    assert [job.state for job in log.store.all_after(-1, 100)] == [State.COMPLETED] * 50


def test_what_waits_in_memory_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_jobs, "UNWRITTEN", 10)
    for _ in range(25):
        log.do(Dispatch("q"))
    assert len(log.store._unwritten) == 5
    held = 0
    for _ in range(40):
        log.do(Dispatch("q", b'"%s"' % (b"x" * 2**20)))
        held = max(held, sum(len(job.data) for job in log.store._unwritten.values()))
    assert 2**20 < held < 16 * 2**20


@pytest.mark.parametrize("taken_first", [True, False])
def test_a_line_longer_than_what_is_read_of_it_keeps_its_order(
    log: Log, taken_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By priority, then by place, whatever comes and goes while it is longer than memory holds of it."""
    monkeypatch.setattr(tracked_lines, "KEPT", 20)
    if taken_first:
        assert log.empty()
    jobs = [log.dispatch(priority=n * 7919 % 5) for n in range(90)]
    for job in jobs[::3]:
        log.do(Report(job.id, status=State.CANCELLED))
    late = [log.dispatch(priority=2) for _ in range(5)]
    wanted = sorted(
        (job for job in (*jobs, *late) if log.now_of(job).state is State.QUEUED),
        key=lambda each: (each.priority, each.id),
    )
    found = [log.take().id for _ in wanted]
    assert found == [job.id for job in wanted]
    assert log.empty()


def test_who_is_next_is_who_the_table_says_in_every_line(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue, a type and both, with more lines than are kept, each longer than what is read of it."""
    monkeypatch.setattr(tracked_lines, "KEPT", 3)
    monkeypatch.setattr(tracked_lines, "LINES", 4)
    chance = random.Random(7)
    for _ in range(300):
        queue, kind = chance.choice("qr"), chance.choice(["", "A", "B"])
        match chance.randrange(4):
            case 0 | 1:
                log.dispatch(queue, type=kind, priority=chance.randrange(3))
            case 2 if waiting := [job for job in log.store.all_after(-1, 1000) if job.state is State.QUEUED]:
                log.do(Report(chance.choice(waiting).id, status=State.CANCELLED))
            case _:
                name = chance.choice([(queue, None), (None, kind or "A"), (queue, kind or "A")])
                fit = [
                    job
                    for job in log.store.all_after(-1, 1000)
                    if job.state is State.QUEUED and name[0] in (None, job.queue) and name[1] in (None, job.type)
                ]
                first = min(fit, key=lambda each: (each.priority, each.place), default=None)
                taken = log.do(Take(*name)).job
                assert (taken and taken.id) == (first and first.id)


def as_message(offset: int, *entries: bytes) -> Message:
    return Message(offset, b"[" + b",".join(entries) + b"]")


def dispatch(n: int) -> bytes:
    return write_command(Command(f"u{n}", NOW + n, Dispatch("q", b"%d" % n)))


@pytest.mark.parametrize("gone_in", ["a question", "a flush"])
def test_folds_that_the_disk_undid_are_never_passed_over(
    gone_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.streams.view_file.COMMIT_EVERY", 3600.0)
    view = TrackedView(tmp_path)
    view.fold([as_message(0, dispatch(0))])
    view.commit()
    view.fold([as_message(1, dispatch(1))])
    if gone_in == "a question":
        view.store.db.execute("ROLLBACK")
    else:
        view.store.db.execute("PRAGMA max_page_count=1")  # as a full disk
        view.fold([as_message(2, *map(dispatch, range(2, 500)))])
        with pytest.raises(sqlite3.OperationalError, match="full"):
            view.store.counts()
    with pytest.raises(sqlite3.OperationalError, match="undone by the disk"):
        view.fold([as_message(3, dispatch(999))])
    view.close()
    view = TrackedView(tmp_path)
    position = view.position()
    assert position is not None
    assert position[0] == 0
    assert [job.data for job in view.store.all_after(-1, 10)] == [b"0"]
    view.close()


def test_what_a_sealed_life_had_no_need_of_is_never_brought_over(tmp_path: Path) -> None:
    """A standby sets each life of the stream aside; what another leader has brought over must not come back."""
    view = TrackedView(tmp_path, keep_old=True)
    view.fold([as_message(0, dispatch(0))])
    view.renew()
    assert len(view.old_files()) == 1
    epoch, term = (
        control.write_epoch("e", at=NOW),
        control.write_term("e", 1, by="me", at=NOW) | {"from": "l", "seq": 1},
    )
    sealed = {"type": "sealed", "at": NOW, "from": "l", "seq": 2}
    view.fold([Message(n, text.dump(each)) for n, each in enumerate((epoch, term, sealed))])
    assert view.store.stand().sealed
    view.fold([as_message(3, dispatch(1))])
    view.renew()
    (path,) = view.old_files()
    with sqlite3.connect(path) as kept:
        assert kept.execute("SELECT data FROM jobs").fetchall() == [(b"1",)]
    assert len(list(tmp_path.glob("*.late-*"))) == 1
    view.close()
