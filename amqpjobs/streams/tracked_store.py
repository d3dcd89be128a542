"""Tracked jobs in SQLite: the store of `model.tracked_fold`, and what the leader and lists ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Tracked
from amqpjobs.streams.tracked_jobs import NEVER, JobTables
from amqpjobs.streams.tracked_rows import CODES, STATES

LAYOUT = 4
"""Of these tables: a file of another one is rebuilt."""

_QUEUED = CODES[State.QUEUED]


class TrackedStore(JobTables):
    """The whole of it: what leaders and lists ask goes over the tables of `tracked_jobs`, and changes nothing."""

    def due(self, now: float, limit: int) -> list[int]:
        """The jobs that time changes now, the earliest first."""
        if self.next_wake() > now:
            return []
        self.flush()
        self._wake = None
        rows = self.db.execute(
            "SELECT id FROM jobs WHERE wake IS NOT NULL AND wake<=? ORDER BY wake LIMIT ?", (now, limit)
        )
        return [row[0] for row in rows]

    def next_wake(self) -> float:
        """When time next changes a job, or earlier: who asks `due` then may find none. NEVER is a time too."""
        if self._wake is None:
            self.flush()
            row = self.db.execute("SELECT min(wake) FROM jobs WHERE wake IS NOT NULL").fetchone()
            self._wake = NEVER if row[0] is None else float(row[0])
        return self._wake

    def to_offer(self, limit: int) -> list[Tracked]:
        """The jobs that AMQP workers are to be told of, those first that were queued first."""
        if not self._any_to_offer:
            return []
        self.flush()
        found = self._these(self.db.execute("SELECT id FROM jobs WHERE offer=1 ORDER BY place LIMIT ?", (limit,)))
        self._any_to_offer = bool(found)
        return found

    def tagged(self, tag: str) -> list[int]:
        """The jobs that have a tag."""
        return [row[0] for row in self.db.execute("SELECT id FROM tags WHERE tag=? ORDER BY id", (tag,))]

    def types(self) -> list[str]:
        """All types that a job ever had, sorted."""
        return [row[0] for row in self.db.execute("SELECT type FROM types WHERE type<>'' ORDER BY type")]

    def counts(self) -> dict[State, int]:
        """How many jobs there are in each state."""
        self.flush()
        rows = self.db.execute("SELECT state, count(*) FROM jobs GROUP BY state")
        return {STATES[code]: n for code, n in rows}

    def queued(self) -> dict[str, int]:
        """How many jobs wait for a worker in each queue."""
        self.flush()
        found = "SELECT queues.name, count(jobs.id) FROM queues LEFT JOIN jobs ON jobs.queue=queues.name "
        return dict(self.db.execute(f"{found}AND jobs.state={_QUEUED} GROUP BY queues.name"))

    def listed(
        self, states: Iterable[State], type_: str | None, limit: int, offset: int, tag: str | None = None
    ) -> list[Tracked]:
        """One page of the jobs in some states (of one type, with one tag), in priority order: less first, then the
        older."""
        self.flush()
        narrowed = {" AND type=? AND type<>''": type_, " AND id IN (SELECT id FROM tags WHERE tag=?)": tag}
        also, values = "", list[str]()
        for condition, value in narrowed.items():
            if value is not None:
                also, values = also + condition, [*values, value]
        found = f"SELECT priority, id FROM jobs WHERE state=?{also} ORDER BY priority, id LIMIT ?"  # noqa: S608
        pages = [self.db.execute(found, [CODES[state], *values, limit + offset]) for state in states]
        chosen = islice(merge(*pages), offset, offset + limit)
        return self._these([(id_,) for _, id_ in chosen])

    def lines(self, id_: int, after: int = 0) -> list[tuple[int, float, str]]:
        """A job's log after line number `after`: number, time, line."""
        return list(self.db.execute("SELECT n, at, line FROM lines WHERE id=? AND n>? ORDER BY n", (id_, after)))

    def highest(self) -> int:
        """The greatest number that a job has, or had its place by."""
        self.flush()
        row = self.db.execute("SELECT max(id), max(place) FROM jobs").fetchone()
        return max(row[0] or 0, row[1] or 0)

    def all_after(self, id_: int, limit: int) -> list[Tracked]:
        """All jobs by number, by pages."""
        self.flush()
        return self._these(self.db.execute("SELECT id FROM jobs WHERE id>? ORDER BY id LIMIT ?", (id_, limit)))
