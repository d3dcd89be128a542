"""A fold of `job_events` in memory, and a hand that gives it commands as programs would."""

from __future__ import annotations

import itertools
import json
import sqlite3
from typing import Any

from amqpjobs.model import control, text
from amqpjobs.model.tracked import Judged, Policy, Tracked, Verdict, Word
from amqpjobs.model.tracked_commands import Act, Command, Dispatch, SetQueue, Take
from amqpjobs.model.tracked_fold import TrackedSet
from amqpjobs.model.tracked_wire import write_command
from amqpjobs.streams.tracked_store import TrackedStore

NOW = 1_800_000_000.0


class Log:
    """A stream of one message per entry, folded as it is written."""

    def __init__(self, queue: str = "q", **policy: Any) -> None:
        self.now = NOW
        self.store = TrackedStore(sqlite3.connect(":memory:", isolation_level=None))
        self.fold = TrackedSet(self.store)
        self.offset = -1
        self._seqs: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self.entry(control.write_epoch("e", at=NOW), source="leader")
        self.entry(control.write_term("e", 1, by="me", at=NOW), source="leader")
        if queue:
            self.do(SetQueue(queue, Policy(**policy)))

    def message(self, body: bytes) -> list[Judged]:
        self.offset += 1
        return self.fold.fold(self.offset, body)

    def entry(self, value: dict[str, Any], source: str | None = None) -> list[Judged]:
        if source is not None:
            seq = self._seqs[source] = self._seqs.get(source, 0) + 1
            value = value | {"from": source, "seq": seq}
        return self.message(json.dumps(value).encode())

    def do(self, act: Act, uuid: str | None = None) -> Judged:
        """Give a command; its verdict."""
        command = Command(uuid or f"u{next(self._numbers)}", self.now, act)
        (judged,) = self.message(write_command(command))
        return judged

    def dispatch(self, queue: str = "q", data: Any = None, **more: Any) -> Tracked:
        judged = self.do(Dispatch(queue, text.dump(data), **more))
        assert judged.verdict.word in (Word.CREATED, Word.UPDATED), judged
        assert judged.job is not None
        return judged.job

    def take(self, queue: str | None = "q", type_: str | None = None, worker: str = "") -> Tracked:
        judged = self.do(Take(queue, type_, worker))
        assert judged.verdict.word is Word.DONE, judged
        assert judged.job is not None
        return judged.job

    def empty(self, queue: str = "q") -> bool:
        return self.do(Take(queue)).verdict == Verdict(Word.EMPTY)

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let time pass, and its leader say what that changed, until nothing is due."""
        self.now += seconds
        while due := self.store.due(self.now, 256):
            for job in due:
                self.tick(job)

    def tick(self, job: int, n: int = 1, source: str = "leader") -> None:
        self.entry({"type": "tick", "epoch": "e", "n": n, "at": self.now, "job": job}, source)

    def get(self, job: Tracked | int) -> Tracked | None:
        return self.store.get(job if isinstance(job, int) else job.id)

    def now_of(self, job: Tracked) -> Tracked:
        found = self.get(job)
        assert found is not None, f"{job.id} is gone"
        return found


class Statements(list[str]):
    """The statements that a connection runs meanwhile."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__()
        self._db = db

    def __enter__(self) -> Statements:
        self._db.set_trace_callback(self.append)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.set_trace_callback(None)
