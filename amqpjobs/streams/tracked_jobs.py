"""Tracked jobs in their tables: what the fold changes, and what it asks.

Jobs that changed stay in memory until the transaction's end (or until they are many) and go to disk in statements of
many rows: most are taken, reported on and ended meanwhile, and are written once.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable

from amqpjobs.model.lifecycle import WAITING, State
from amqpjobs.model.tracked import Tracked
from amqpjobs.streams.tracked_known import KnownTables, put_many
from amqpjobs.streams.tracked_lines import Lines, Name, Place, place_of
from amqpjobs.streams.tracked_rows import CODES, SELECT, changing_of, fixed_of, is_inline, job_of

MOST_LINES = 1000
"""Lines of a job's log that are kept: the first ones."""
CACHED = 4096
"""Jobs that were used lately and stay in memory."""
CACHED_BYTES = 4096
"""Jobs with more data than this stay on disk: memory is bounded."""
UNWRITTEN = 2000
UNWRITTEN_BYTES = 8 * 1024 * 1024
"""Changed jobs, and bytes of their data, that are kept in memory before they go to disk, whichever is reached first."""

NEVER = math.inf

_QUEUED, _RUNNING = CODES[State.QUEUED], CODES[State.RUNNING]
_LIVE = ",".join(str(CODES[state]) for state in sorted(WAITING | {State.RUNNING}))

_PUT = """ON CONFLICT DO UPDATE SET state=excluded.state, place=excluded.place, wake=excluded.wake,
 worker=excluded.worker, offer=excluded.offer, rest=excluded.rest, data=excluded.data, output=excluded.output"""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, key TEXT NOT NULL, priority INTEGER NOT NULL,
  state INTEGER NOT NULL, place INTEGER NOT NULL, wake REAL, worker TEXT NOT NULL, offer INTEGER, rest TEXT NOT NULL,
  data BLOB, output BLOB
);
CREATE INDEX IF NOT EXISTS jobs_queued ON jobs (queue, priority, place) WHERE state={_QUEUED};
CREATE INDEX IF NOT EXISTS jobs_queued_type ON jobs (type, priority, place) WHERE state={_QUEUED} AND type<>'';
CREATE INDEX IF NOT EXISTS jobs_offer ON jobs (place) WHERE offer=1;
CREATE INDEX IF NOT EXISTS jobs_wake ON jobs (wake) WHERE wake IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_key ON jobs (queue, key) WHERE key<>'' AND state IN ({_LIVE});
CREATE INDEX IF NOT EXISTS jobs_worker ON jobs (worker) WHERE worker<>'' AND state={_RUNNING};
CREATE INDEX IF NOT EXISTS jobs_state ON jobs (state, priority, id);
CREATE INDEX IF NOT EXISTS jobs_type ON jobs (type, state, priority, id) WHERE type<>'';
CREATE TABLE IF NOT EXISTS payloads (id INTEGER PRIMARY KEY, data BLOB NOT NULL, output BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tags (tag TEXT, id INTEGER, PRIMARY KEY (tag, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS types (type TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lines (id INTEGER, n INTEGER, at REAL NOT NULL, line TEXT NOT NULL, PRIMARY KEY (id, n))
 WITHOUT ROWID;
"""


class JobTables(KnownTables):
    """`model.tracked.Store` on a connection; the caller opens and commits the transactions.

    Jobs that were used lately stay in memory, also when they are on disk. Whatever reads their table by SQL calls
    `flush` first.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._lines = Lines(self._queued, self.get)
        super().__init__(db)
        db.executescript(SCHEMA)

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        super().rolled_back()
        self._jobs: dict[int, Tracked] = {}
        self._unwritten: dict[int, Tracked] = {}
        self._unwritten_bytes = 0
        self._unwritten_keys: dict[tuple[str, str], set[int]] = {}
        self._types: set[str] = set()
        self._changed: set[int] = set()
        self._greatest: int | None = None
        self._wake: float | None = None
        self._any_to_offer = True
        self._lines.clear()

    def _write(self) -> None:
        super()._write()
        if not self._unwritten:
            return
        jobs = list(self._unwritten.values())
        put_many(self.db, "jobs", [(*fixed_of(job), *changing_of(job)) for job in jobs], _PUT)
        self._unwritten.clear()
        self._unwritten_keys.clear()
        self._unwritten_bytes = 0
        for job in jobs:
            self._cache(job)

    def take_changed(self) -> set[int]:
        """The jobs that were added, changed or removed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def get(self, id_: int) -> Tracked | None:
        """A job by its number. No row is sought for a greater one than all: the fold asks whether a new one is free."""
        if id_ > self._highest_id():
            return None
        return self._unwritten.get(id_) or self._jobs.get(id_) or self._one(id_)

    def add(self, job: Tracked) -> None:
        """A new job."""
        if not is_inline(job):
            self._keep_payload(job)
        if job.tags:
            self.db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(tag, job.id) for tag in job.tags])
        if job.type not in self._types:
            self.db.execute("INSERT OR IGNORE INTO types VALUES (?)", (job.type,))
            self._types.add(job.type)
        self._greatest = max(self._highest_id(), job.id)
        if job.state is State.QUEUED:
            self._lines.enter(job)
        self._put(job)

    def change(self, job: Tracked) -> None:
        """A job is not as it was."""
        old = self.get(job.id)
        assert old is not None, "what is changed is there"
        if is_inline(job):
            if not is_inline(old):
                self.db.execute("DELETE FROM payloads WHERE id=?", (job.id,))
        elif (old.data, old.output) != (job.data, job.output):
            self._keep_payload(job)
        if job.state is State.QUEUED and not (old.state is State.QUEUED and place_of(old) == place_of(job)):
            self._lines.enter(job)
        self._put(job)

    def _put(self, job: Tracked) -> None:
        """Keep a job as it is now."""
        if job.key:
            self._unwritten_keys.setdefault((job.queue, job.key), set()).add(job.id)
        self._unwritten[job.id] = job
        self._jobs.pop(job.id, None)
        self._changed.add(job.id)
        self._any_to_offer = self._any_to_offer or job.to_offer
        if self._wake is not None:
            self._wake = min(self._wake, NEVER if job.wake is None else job.wake)
        self._unwritten_bytes += len(job.data) + len(job.output)
        if len(self._unwritten) >= UNWRITTEN or self._unwritten_bytes > UNWRITTEN_BYTES:
            self.flush()

    def _keep_payload(self, job: Tracked) -> None:
        self.db.execute("INSERT OR REPLACE INTO payloads VALUES (?, ?, ?)", (job.id, job.data, job.output))

    def remove(self, job: Tracked) -> None:
        """Forget a job and all of it."""
        self._unwritten.pop(job.id, None)
        self._jobs.pop(job.id, None)
        for table in ("jobs", "payloads", "lines"):
            self.db.execute(f"DELETE FROM {table} WHERE id=?", (job.id,))  # noqa: S608 (constants only)
        self.db.executemany("DELETE FROM tags WHERE tag=? AND id=?", [(tag, job.id) for tag in job.tags])
        self._changed.add(job.id)

    def next_queued(self, queue: str | None, type_: str | None) -> Tracked | None:
        """The queued job that is next, of a queue, of a type, or of both."""
        return self._lines.first((queue, type_))

    def _queued(self, name: Name, limit: int) -> list[Place]:
        self.flush()
        given = [(column, value) for column, value in zip(("queue", "type"), name, strict=True) if value is not None]
        where = " AND ".join(f"{column}=?" for column, _ in given) + (" AND type<>''" if name[1] else "")
        found = f"SELECT priority, place, id FROM jobs WHERE state={_QUEUED} AND {where} "  # noqa: S608
        values = [value for _, value in given]
        return self.db.execute(f"{found}ORDER BY priority, place, id LIMIT ?", (*values, limit)).fetchall()

    def of_key(self, queue: str, key: str) -> list[Tracked]:
        """The jobs of a key that wait or run: at most one of each."""
        where = f"SELECT id FROM jobs WHERE queue=? AND key=? AND key<>'' AND state IN ({_LIVE})"  # noqa: S608
        ids = {id_ for (id_,) in self.db.execute(where, (queue, key))} | self._unwritten_keys.get((queue, key), set())
        return [job for id_ in sorted(ids) if (job := self.get(id_)) is not None and not job.ended]

    def running_by(self, worker: str, queue: str | None) -> list[Tracked]:
        """What a worker runs (of one queue)."""
        self.flush()
        where = f"SELECT id FROM jobs WHERE worker=? AND worker<>'' AND state={_RUNNING} ORDER BY id"  # noqa: S608
        found = self._these(self.db.execute(where, (worker,)))
        return [job for job in found if queue is None or job.queue == queue]

    def waiting_in(self, queue: str) -> list[Tracked]:
        """All that waits in a queue."""
        self.flush()
        codes = ",".join(str(CODES[state]) for state in sorted(WAITING))
        where = f"SELECT id FROM jobs WHERE state IN ({codes}) AND queue=? ORDER BY id"  # noqa: S608
        return self._these(self.db.execute(where, (queue,)))

    def add_line(self, id_: int, at: float, line: str) -> bool:
        """One more line of a job's log; False when it has as many as it may."""
        last = self.db.execute("SELECT max(n) FROM lines WHERE id=?", (id_,)).fetchone()[0] or 0
        if last >= MOST_LINES:
            return False
        self.db.execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (id_, last + 1, at, line))
        return True

    def _these(self, ids: Iterable[tuple[int]]) -> list[Tracked]:
        return [job for (id_,) in list(ids) if (job := self.get(id_)) is not None]

    def _one(self, id_: int) -> Tracked | None:
        row = self.db.execute(f"{SELECT}WHERE jobs.id=?", (id_,)).fetchone()
        if row is None:
            return None
        job = job_of(row)
        self._cache(job)
        return job

    def _highest_id(self) -> int:
        if self._greatest is None:
            self._greatest = int(self.db.execute("SELECT ifnull(max(id), -1) FROM jobs").fetchone()[0])
        return self._greatest

    def _cache(self, job: Tracked) -> None:
        """Keep what is on disk in memory too, and those no longer that came first."""
        if len(job.data) + len(job.output) > CACHED_BYTES:
            return
        self._jobs[job.id] = job
        if len(self._jobs) > CACHED:
            del self._jobs[next(iter(self._jobs))]
