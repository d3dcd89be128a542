"""Tracked jobs in SQLite: the store of `model.tracked_fold`, and what the leader and lists ask of it."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

import orjson

from amqpjobs.model.lifecycle import WAITING, State
from amqpjobs.model.pending import Claim
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Policy, RunAt, Stand, Tracked, Verdict, Word

LAYOUT = 2
"""Of these tables: a file of another one is rebuilt."""

MOST_LINES = 1000
"""Lines of a job's log that are kept: the first ones."""
CACHED = 4096
"""Jobs that were used lately and stay in memory."""
CACHED_BYTES = 4096
"""Jobs with more data than this stay on disk: memory is bounded."""

SOURCES = 10_000
"""How many appenders' last numbers are kept in memory."""

CARRIED = 5000
"""Appenders' numbers and verdicts that pages carry: those of the last seconds, in which a repeat may still come."""

STATES = list(State)
WORDS = list(Word)
_WORDS = {word: code for code, word in enumerate(WORDS)}
_CODE = {state: code for code, state in enumerate(STATES)}
_QUEUED, _RUNNING = _CODE[State.QUEUED], _CODE[State.RUNNING]
_LIVE = ",".join(str(_CODE[state]) for state in sorted(WAITING | {State.RUNNING}))

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seqs (source TEXT PRIMARY KEY, seq INTEGER NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (uuid TEXT PRIMARY KEY, word INTEGER NOT NULL, job INTEGER, at INTEGER NOT NULL)
 WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, policy TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL,
  priority INTEGER NOT NULL, place INTEGER NOT NULL, wake REAL, worker TEXT NOT NULL, rest TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_queued ON jobs (queue, priority, place) WHERE state={_QUEUED};
CREATE INDEX IF NOT EXISTS jobs_queued_type ON jobs (type, priority, place) WHERE state={_QUEUED} AND type<>'';
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

_SELECT = """SELECT jobs.id, queue, type, key, state, priority, place, worker, rest, data, output
 FROM jobs JOIN payloads ON payloads.id=jobs.id """
_REST = (
    "created_at", "updated_at", "due", "started_at", "ended_at", "beat_at", "token", "attempt", "retried", "stalled",
    "error", "progress",
)  # fmt: skip
_get_rest = attrgetter(*_REST)


class TrackedStore:
    """`model.tracked.Store` on a connection; the caller opens and commits the transactions.

    Jobs that were used lately stay in memory as they are on disk: most are taken, reported on and ended within seconds.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        db.executescript(SCHEMA)
        self.db = db
        self.rolled_back()

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""
        self._stand: Stand | None = None
        self._seqs: dict[str, int] = {}
        self._new_seqs: dict[str, int] = {}
        self._verdicts: dict[str, tuple[Verdict, float]] = {}
        self._queues: dict[str, Policy | None] = {}
        self._jobs: OrderedDict[int, Tracked] = OrderedDict()
        self._types: set[str] = set()
        self._changed: set[int] = set()

    def flush(self) -> None:
        """Write what is kept in memory until the transaction's end: what many rows of one kind cost by themselves."""
        rows = [(uuid, _WORDS[v.word], v.job, int(at)) for uuid, (v, at) in self._verdicts.items()]
        self.db.executemany("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", rows)
        seqs = [(source, self._seqs[source], offset) for source, offset in self._new_seqs.items()]
        self.db.executemany("INSERT OR REPLACE INTO seqs VALUES (?, ?, ?)", seqs)
        self._verdicts.clear()
        self._new_seqs.clear()
        if len(self._seqs) > SOURCES:
            self._seqs.clear()

    def take_changed(self) -> set[int]:
        """The jobs that were added, changed or removed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    # What is known of the stream.

    def meta(self, name: str) -> Any:
        """One remembered value, or None."""
        row = self.db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else row[0]

    def keep_meta(self, name: str, value: Any) -> None:
        """Remember one value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def stand(self) -> Stand:
        """Epoch, term and the log's time."""
        if self._stand is None:
            kept = self.meta("stand")
            stand = Stand(*json.loads(kept)) if kept else Stand()
            self._stand = stand if stand.term is None else stand._replace(term=Claim(*stand.term))
        return self._stand

    def keep_stand(self, stand: Stand) -> None:
        """Replace them."""
        self.keep_meta("stand", json.dumps(stand))
        self._stand = stand

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        if source not in self._seqs:
            row = self.db.execute("SELECT seq FROM seqs WHERE source=?", (source,)).fetchone()
            self._seqs[source] = 0 if row is None else row[0]
        return self._seqs[source]

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self._seqs[source] = seq
        self._new_seqs[source] = offset

    def verdict(self, uuid: str) -> Verdict | None:
        """What was said of a command."""
        if uuid in self._verdicts:
            return self._verdicts[uuid][0]
        row = self.db.execute("SELECT word, job FROM verdicts WHERE uuid=?", (uuid,)).fetchone()
        return None if row is None else Verdict(WORDS[row[0]], row[1])

    def keep_verdict(self, uuid: str, verdict: Verdict, at: float) -> None:
        """Remember it."""
        self._verdicts[uuid] = verdict, at

    def forget_verdicts(self, before: float) -> None:
        """Drop those of commands whose `at` is earlier. It reads them all: the caller asks rarely."""
        self.flush()
        self.db.execute("DELETE FROM verdicts WHERE at<?", (before,))

    # Queues.

    def queue(self, name: str) -> Policy | None:
        """The settings of a queue; None when there is none."""
        if name not in self._queues:
            row = self.db.execute("SELECT policy FROM queues WHERE name=?", (name,)).fetchone()
            self._queues[name] = None if row is None else _policy(orjson.loads(row[0]))
        return self._queues[name]

    def keep_queue(self, name: str, policy: Policy) -> None:
        """Create or replace them."""
        self.db.execute("INSERT OR REPLACE INTO queues VALUES (?, ?)", (name, json.dumps(_sparse(policy))))
        self._queues[name] = policy

    def drop_queue(self, name: str) -> None:
        """Forget them."""
        self.db.execute("DELETE FROM queues WHERE name=?", (name,))
        self._queues[name] = None

    def queues(self) -> list[str]:
        """All names, sorted."""
        return [row[0] for row in self.db.execute("SELECT name FROM queues ORDER BY name")]

    # Jobs.

    def get(self, id_: int) -> Tracked | None:
        """A job by its number."""
        return self._jobs.get(id_) or self._one("WHERE jobs.id=?", id_)

    def add(self, job: Tracked) -> None:
        """A new job."""
        self.db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (job.id, *_row(job)))
        self.db.execute("INSERT INTO payloads VALUES (?, ?, ?)", (job.id, job.data, job.output))
        if job.tags:
            self.db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(tag, job.id) for tag in job.tags])
        if job.type not in self._types:
            self.db.execute("INSERT OR IGNORE INTO types VALUES (?)", (job.type,))
            self._types.add(job.type)
        self._cache(job)
        self._changed.add(job.id)

    def change(self, job: Tracked) -> None:
        """A job is not as it was."""
        old = self.get(job.id)
        assert old is not None, "what is changed is there"
        self.db.execute(
            "UPDATE jobs SET queue=?, type=?, key=?, state=?, priority=?, place=?, wake=?, worker=?, rest=? WHERE id=?",
            (*_row(job), job.id),
        )
        if (old.data, old.output) != (job.data, job.output):
            self.db.execute("UPDATE payloads SET data=?, output=? WHERE id=?", (job.data, job.output, job.id))
        self._cache(job)
        self._changed.add(job.id)

    def remove(self, job: Tracked) -> None:
        """Forget a job and all of it."""
        for table in ("jobs", "payloads", "lines"):
            self.db.execute(f"DELETE FROM {table} WHERE id=?", (job.id,))  # noqa: S608 (constants only)
        self.db.executemany("DELETE FROM tags WHERE tag=? AND id=?", [(tag, job.id) for tag in job.tags])
        self._jobs.pop(job.id, None)
        self._changed.add(job.id)

    def next_queued(self, queue: str | None, type_: str | None) -> Tracked | None:
        """The queued job that is next, of a queue, of a type, or of both."""
        given = [(name, value) for name, value in (("queue", queue), ("type", type_)) if value is not None]
        where = " AND ".join(f"{name}=?" for name, _ in given) + (" AND type<>''" if type_ else "")
        found = f"SELECT id FROM jobs WHERE state={_QUEUED} AND {where} ORDER BY priority, place LIMIT 1"  # noqa: S608
        row = self.db.execute(found, [value for _, value in given]).fetchone()
        return None if row is None else self.get(row[0])

    def of_key(self, queue: str, key: str) -> list[Tracked]:
        """The jobs of a key that wait or run: at most one of each."""
        where = f"SELECT id FROM jobs WHERE queue=? AND key=? AND key<>'' AND state IN ({_LIVE})"  # noqa: S608
        return self._these(self.db.execute(where, (queue, key)))

    def running_by(self, worker: str, queue: str | None) -> list[Tracked]:
        """What a worker runs (of one queue)."""
        where = f"SELECT id FROM jobs WHERE worker=? AND worker<>'' AND state={_RUNNING} ORDER BY id"  # noqa: S608
        found = self._these(self.db.execute(where, (worker,)))
        return [job for job in found if queue is None or job.queue == queue]

    def waiting_in(self, queue: str) -> list[Tracked]:
        """All that waits in a queue."""
        codes = ",".join(str(_CODE[state]) for state in sorted(WAITING))
        where = f"SELECT id FROM jobs WHERE state IN ({codes}) AND queue=? ORDER BY id"  # noqa: S608
        return self._these(self.db.execute(where, (queue,)))

    def add_line(self, id_: int, at: float, line: str) -> bool:
        """One more line of a job's log; False when it has as many as it may."""
        last = self.db.execute("SELECT max(n) FROM lines WHERE id=?", (id_,)).fetchone()[0] or 0
        if last >= MOST_LINES:
            return False
        self.db.execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (id_, last + 1, at, line))
        return True

    # What the leader and lists ask.

    def due(self, now: float, limit: int) -> list[int]:
        """The jobs that time changes now, the earliest first."""
        rows = self.db.execute(
            "SELECT id FROM jobs WHERE wake IS NOT NULL AND wake<=? ORDER BY wake LIMIT ?", (now, limit)
        )
        return [row[0] for row in rows]

    def next_wake(self) -> float | None:
        """When time next changes a job; None: never."""
        row = self.db.execute("SELECT min(wake) FROM jobs WHERE wake IS NOT NULL").fetchone()
        return None if row[0] is None else float(row[0])

    def tagged(self, tag: str) -> list[int]:
        """The jobs that have a tag."""
        return [row[0] for row in self.db.execute("SELECT id FROM tags WHERE tag=? ORDER BY id", (tag,))]

    def types(self) -> list[str]:
        """All types that a job ever had, sorted."""
        return [row[0] for row in self.db.execute("SELECT type FROM types WHERE type<>'' ORDER BY type")]

    def counts(self) -> dict[State, int]:
        """How many jobs there are in each state."""
        rows = self.db.execute("SELECT state, count(*) FROM jobs GROUP BY state")
        return {STATES[code]: n for code, n in rows}

    def queued(self) -> dict[str, int]:
        """How many jobs wait for a worker in each queue."""
        found = "SELECT queues.name, count(jobs.id) FROM queues LEFT JOIN jobs ON jobs.queue=queues.name "
        return dict(self.db.execute(f"{found}AND jobs.state={_QUEUED} GROUP BY queues.name"))

    def listed(self, states: Iterable[State], type_: str | None, limit: int, offset: int) -> list[Tracked]:
        """One page of the jobs in some states (of one type), in priority order: less first, then the older."""
        of_type, values = ("", []) if type_ is None else (" AND type=? AND type<>''", [type_])
        found = f"SELECT priority, id FROM jobs WHERE state=?{of_type} ORDER BY priority, id LIMIT ?"  # noqa: S608
        pages = [self.db.execute(found, [_CODE[state], *values, limit + offset]) for state in states]
        chosen = islice(merge(*pages), offset, offset + limit)
        return self._these([(id_,) for _, id_ in chosen])

    def lines(self, id_: int, after: int = 0) -> list[tuple[int, float, str]]:
        """A job's log after line number `after`: number, time, line."""
        return list(self.db.execute("SELECT n, at, line FROM lines WHERE id=? AND n>? ORDER BY n", (id_, after)))

    def highest(self) -> int:
        """The greatest number that a job has, or had its place by."""
        row = self.db.execute("SELECT max(id), max(place) FROM jobs").fetchone()
        return max(row[0] or 0, row[1] or 0)

    def known(self) -> tuple[list[tuple[str, int]], list[tuple[str, Verdict, float]]]:
        """The appenders that were heard of last, and the latest verdicts, as many as pages carry."""
        sources = self.db.execute("SELECT source, seq FROM seqs ORDER BY offset DESC LIMIT ?", (CARRIED,)).fetchall()
        rows = self.db.execute("SELECT uuid, word, job, at FROM verdicts ORDER BY at DESC LIMIT ?", (CARRIED,))
        return sources, [(uuid, Verdict(WORDS[word], job), at) for uuid, word, job, at in rows]

    def all_after(self, id_: int, limit: int) -> list[Tracked]:
        """All jobs by number, by pages."""
        return self._these(self.db.execute("SELECT id FROM jobs WHERE id>? ORDER BY id LIMIT ?", (id_, limit)))

    def _these(self, ids: Iterable[tuple[int]]) -> list[Tracked]:
        return [job for (id_,) in list(ids) if (job := self.get(id_)) is not None]

    def _one(self, where: str, *values: Any) -> Tracked | None:
        row = self.db.execute(_SELECT + where, values).fetchone()
        if row is None:
            return None
        job = _job(row)
        self._cache(job)
        return job

    def _cache(self, job: Tracked) -> None:
        if len(job.data) + len(job.output) > CACHED_BYTES:
            self._jobs.pop(job.id, None)
            return
        self._jobs[job.id] = job
        self._jobs.move_to_end(job.id)
        if len(self._jobs) > CACHED:
            self._jobs.popitem(last=False)


def _row(job: Tracked) -> tuple[Any, ...]:
    flags = None if job.flags is None else list(job.flags)
    rest = [*_get_rest(job), _sparse(job.policy), list(job.tags), job.outcome, flags]
    return (
        job.queue, job.type, job.key, _CODE[job.state], job.priority, job.place, job.wake, job.worker,
        orjson.dumps(rest).decode(),
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> Tracked:
    id_, queue, type_, key, code, priority, place, worker, rest, data, output = row
    kept = orjson.loads(rest)
    named = dict(zip(_REST, kept, strict=False))
    policy, tags, outcome, flags = kept[len(_REST) :]
    return Tracked(
        id=id_, queue=queue, type=type_, key=key, state=STATES[code], priority=priority, place=place, worker=worker,
        data=data, output=output, policy=_policy(policy), tags=tuple(tags),
        outcome=None if outcome is None else State(outcome), flags=None if flags is None else _flags(flags), **named,
    )  # fmt: skip


def _sparse(policy: Policy) -> list[Any]:
    """Null stands for what is as by default."""
    return [None if value == usual else value for value, usual in zip(policy, DEFAULT_POLICY, strict=True)]


def _policy(kept: list[Any]) -> Policy:
    fields: list[Any] = [u if value is None else value for value, u in zip(kept, DEFAULT_POLICY, strict=True)]
    found = Policy(*fields)
    return found._replace(retry_delays=tuple(found.retry_delays))


def _flags(kept: list[Any]) -> Flags:
    found = Flags(*kept)
    return found._replace(run_at=RunAt(found.run_at))
