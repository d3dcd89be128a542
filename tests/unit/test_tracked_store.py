"""The tables of tracked jobs: what stands in a job's row and what beside it, and which commands are known."""

from __future__ import annotations

import pytest

from amqpjobs.model import command_names
from amqpjobs.model.tracked import Word
from amqpjobs.model.tracked_commands import Command, Dispatch, Report, Take
from amqpjobs.model.tracked_fold import TrackedSet
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.streams.tracked_rows import INLINE
from tests.unit.tracked import NOW, Log

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
