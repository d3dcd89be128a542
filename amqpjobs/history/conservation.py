"""Whether each job that was enqueued ended exactly once: what the lake has of its beginning and of its ends, joined.

A beginning is an entry of the enqueue log, or of `scheduled_jobs`. An end is a run that succeeded, was cancelled or
came too late, a death, a failure that nobody is told of, or a deletion; a dead job that was put back on its queue has
not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from amqpjobs.history import conserved
from amqpjobs.history.store import Row, Span, Store, span
from amqpjobs.history.tracked_ends import TrackedEnds, tracked_ends

_FOR_EVER = 4e9
PATIENCE = 3600.0
"""Seconds that a job may take before anybody misses it."""


Depths = Callable[[Iterable[str]], Mapping[str, int]]
"""How many jobs wait in each of these queues."""


class Case(NamedTuple):
    """A job that did not end exactly once. `at`: seconds since 1970; `ends` as they were counted; `why` in words."""

    jid: str
    cls: str | None
    queue: str | None
    at: float | None
    ends: int
    why: str


class Conservation(NamedTuple):
    """What became of the jobs that were enqueued in a span."""

    enqueued: int
    ended_once: int
    deleted: int
    """Of those that ended once: removed before they ran."""
    waiting: list[Case]
    lost: list[Case]
    doubled: list[Case]
    orphaned: list[Case]
    """They ended in the span, and their beginning is not on record, though the log was on when they began."""
    unlogged: int
    """Jobs that ended in the span, of before the log was on, or without one."""
    without_jid: int
    """Entries of the span that name no job: they cannot be joined."""
    unreadable: int
    log_since: float | None
    """When the oldest entry of the enqueue log was written: before it only scheduled jobs have a beginning."""
    tracked: TrackedEnds

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, doubled or orphaned."""
        return not (self.lost or self.doubled or self.orphaned)


def conservation(
    folder: Path, since: float, until: float, *, now: float, depths: Depths, patience: float = PATIENCE
) -> Conservation:
    """Jobs enqueued from `since` to before `until` (seconds since 1970), by what the lake holds now.

    A job without an end waits while it is in a delayed set, or was enqueued less than `patience` seconds before `now`
    (when the lake last held all). Of the others of a queue, so many as it holds now (`depths`) wait in it, the
    youngest: queues are served in order. Raises HistoryMissing.
    """
    store = Store(folder)
    for name in conserved.COLUMNS:
        store.rows(conserved.loaded(name, store.scan(name, _days(name, since, until))), [])
    store.rows(conserved.BORN, [])
    store.rows(conserved.JOBS, [since, until])
    store.rows(conserved.STRANGERS, [since, until])
    [(log_since,)] = store.rows(conserved.LOG_SINCE, [])
    [(enqueued, once, deleted)] = store.rows(conserved.ENDED, [])
    [(unlogged,)] = store.rows(conserved.UNLOGGED, [log_since])
    [(without_jid, unreadable)] = store.rows(conserved.APART, [since, until])
    waiting = [_case((*row, 0), f"in {where}") for *row, where in store.rows(conserved.WAITING, [])]
    missing = [_case((*row, 0), "") for row in store.rows(conserved.MISSING, [])]
    young, lost = _parted(missing, now - patience, depths({case.queue or "" for case in missing} if missing else ()))
    return Conservation(
        enqueued=enqueued,
        ended_once=once,
        deleted=deleted,
        waiting=waiting + young,
        lost=lost,
        doubled=[_case(row, "ended more than once") for row in store.rows(conserved.DOUBLED, [])],
        orphaned=[_case(row, "was never enqueued") for row in store.rows(conserved.ORPHANED, [log_since])],
        unlogged=unlogged,
        without_jid=without_jid,
        unreadable=unreadable,
        log_since=log_since,
        tracked=tracked_ends(store, since, until),
    )


def _days(name: str, since: float, until: float) -> Span:
    """Ends may come long after; beginnings, of what ended in the span, lie long before."""
    born = name in ("raw_enqueued", "raw_scheduled")
    return span(0 if born else since, until if name == "raw_enqueued" else _FOR_EVER)


def _case(row: Row, why: str) -> Case:
    jid, cls, queue, at, ends = row
    return Case(jid, cls, queue, at, ends, why)


def _parted(missing: Sequence[Case], missed: float, depths: Mapping[str, int]) -> tuple[list[Case], list[Case]]:
    """Those that may still come, and the lost ones."""
    left, waiting, lost = dict(depths), [], []
    for case in sorted(missing, key=lambda case: case.at or 0.0, reverse=True):
        queue = case.queue or ""
        if left.get(queue, 0) > 0:
            left[queue] -= 1
            waiting.append(case._replace(why="in its queue"))
        elif case.at is not None and case.at >= missed:
            waiting.append(case._replace(why="enqueued lately"))
        else:
            lost.append(case._replace(why="neither ended nor in its queue"))
    return waiting[::-1], lost[::-1]
