"""How the tracked jobs of a span ended: `job_events` as the lake has it, folded by the rules of all who fold it."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from amqpjobs.history.store import Store, span
from amqpjobs.model.lifecycle import ENDED, State
from amqpjobs.model.tracked import Word
from amqpjobs.model.tracked_fold import TrackedSet
from amqpjobs.streams.tracked_store import TrackedStore

_MESSAGES = 'SELECT epoch, "offset", job FROM {t} WHERE bad IS NULL ORDER BY epoch, "offset", item'
_FOR_EVER = 4e9


class TrackedEnds(NamedTuple):
    """Tracked jobs that were dispatched in a span, by their state; `gone`: deleted, or expired after their end."""

    dispatched: int
    ended: int
    """Of them in a state that is an end, or gone."""
    states: dict[str, int]


def tracked_ends(store: Store, since: float, until: float) -> TrackedEnds:
    """Of the jobs dispatched from `since` to before `until`; the fold ends a job once, or not at all."""
    scan = store.scan("raw_events", span(0, _FOR_EVER))
    rows = [] if scan is None else store.rows(_MESSAGES.format(t=scan), [])
    states: dict[int, State] = {}
    for _, incarnation in itertools.groupby(rows, key=lambda row: row[0]):
        _fold(((offset, job) for _, offset, job in incarnation), since, until, states)
    counts = Counter(states.values())
    ended = sum(count for state, count in counts.items() if state in ENDED or state is State.GONE)
    return TrackedEnds(len(states), ended, {state.value: counts[state] for state in State if counts[state]})


def _fold(events: Iterator[tuple[int, str]], since: float, until: float, states: dict[int, State]) -> None:
    """Fold one incarnation of the stream, and note the states of the span's jobs after it."""
    with closing(sqlite3.connect(":memory:")) as database:
        store = TrackedStore(database)
        tracked = TrackedSet(store)
        mine: set[int] = set()
        for offset, message in itertools.groupby(events, key=lambda event: event[0]):
            body = f"[{','.join(job for _, job in message)}]".encode()
            for judged in tracked.fold(offset, body):
                job = judged.job if judged.verdict.word is Word.CREATED else None
                if job is not None and since <= job.created_at < until:
                    mine.add(job.id)
        for id_ in mine | states.keys():
            job = store.get(id_)
            if job is not None or id_ in mine:
                states[id_] = State.GONE if job is None else job.state
