"""A delayed set's view: the fold's state, the offset reached and the trail that leads there in one SQLite transaction.

A view is disposable: without its file it rebuilds from the stream. The file belongs to one process (state.py locks
its folder); within the process the follower hands it to one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from amqpjobs.model import names
from amqpjobs.model.checkpoint import Checkpoint, adopt, take
from amqpjobs.model.delayed import FOLD_VERSION, DelayedSet
from amqpjobs.model.pending import Facts, Pending
from amqpjobs.model.protocol import Target
from amqpjobs.model.trail import LENGTH, Step, continued, step
from amqpjobs.model.words import Verdict
from amqpjobs.streams.entry_table import LAYOUT
from amqpjobs.streams.follow import Message
from amqpjobs.streams.listing import Listing, Page, Search, indexes
from amqpjobs.streams.rows import Row, row_of
from amqpjobs.streams.search_index import SearchIndex
from amqpjobs.streams.span import Span
from amqpjobs.streams.sqlite_store import FIRST, SqliteStore

log = logging.getLogger("amqpjobs.views")

VERSION = f"{FOLD_VERSION}.{LAYOUT}"
"""Of the fold and of the tables: a file of another one is rebuilt."""

LONG = 10_000
"""Messages from which on a backlog is loaded without indexes."""

CACHE_KIB = 32 * 1024
"""Memory for pages of the file: with the 2 MiB that are the rule, each row of a large set costs reads."""

COMMIT_EVERY = 0.25
"""Seconds between commits while message follows message. What is claimed is settled within as much as a rule, and each
page that both change is written once; a kill costs no more than reading those messages again."""

LOG_PAGES = 16_384
"""Pages of 4 KiB that SQLite's log holds before they go to the file, on which the disk is waited for. With the thousand
that are the rule that was at every second batch of due jobs, which lie all over the file."""

_ASKED: Mapping[str, Sequence[str]] = {
    names.SCHEDULED: (),
    names.RETRIES: ("entries_jid",),
    names.DEAD: ("entries_jid",),
}
"""The indexes that the fold itself asks, for each entry."""


class DelayedView:
    """The view of one delayed stream, in the file `{folder}/{stream}.db`.

    With `keep_old`, the state of a stream that was made anew is set aside (`old()`), so that a leader can append what
    was pending again; without it, it is dropped. With `lists`, it has what pages of any size and search need; without,
    pages are sorted as they are asked for, and text and tags are not found.
    """

    def __init__(self, folder: Path, stream: str, *, keep_old: bool = False, lists: bool = False) -> None:
        self.stream = stream
        self.lost_before: int | None = None
        """The first offset that was left when a trim past this view's position was noticed, else None."""
        self.renewals = 0
        """How often the stream was made anew under this view: what was appended before is not in it."""
        self._path = folder / f"{stream}.db"
        self._keep_old = keep_old
        self._lists = lists
        self._trail: tuple[Step, ...] = ()
        self._committed = 0.0
        self._open()

    # The follower's side.

    def position(self) -> tuple[int, bytes] | None:
        """The offset reached and the digest of the message there; None when nothing was folded yet."""
        offset, digest = self.store.meta("offset"), self.store.meta("digest")
        return None if offset is None else (offset, digest)

    def fold(self, messages: Sequence[Message]) -> None:
        """Fold messages in order, all or none, together with what was folded in the same moment."""
        if not messages:
            return
        if not self._db.in_transaction:
            self._begin()
        try:
            for message in messages:
                self._set.fold(message.offset, message.body, message.headers)
                self.span.add(message.offset, len(message.body))
            self.store.flush()
            self.store.keep_meta("offset", messages[-1].offset)
            self.store.keep_meta("digest", messages[-1].digest)
            trail = continued(self._trail, [step(each.offset, each.body) for each in messages[-LENGTH:]])
            self._keep_trail(trail)
            self._uncommitted = True
            if time.monotonic() - self._committed >= COMMIT_EVERY:
                self._commit()
        except BaseException:
            if self._db.in_transaction:  # SQLite ends it itself when the disk is full
                self._db.execute("ROLLBACK")
            self.store.rolled_back()
            self.span.rolled_back()
            self._trail = self._kept_trail()
            raise
        self._trail = trail

    def trail(self) -> tuple[Step, ...]:
        """What the log must hold for this view to be of it: its last messages that were folded or, until the `upto` of
        the checkpoint that it began with is passed, those before that."""
        return self._trail

    def replaying(self) -> bool:
        """Whether it began with a checkpoint and has not passed its `upto`."""
        position = self.position()
        return self.facts().upto > (0 if position is None else position[0] + 1)

    def expect(self, messages: int) -> None:
        """Load without indexes when far more is to come than is here: putting rows into them costs most of a load."""
        if messages > LONG and messages > self.store.count():
            self.store.drop_indexes(keep=_ASKED[self.stream])

    def arrive(self) -> None:
        """Build what indexes are missing; at once when none is."""
        self.store.build_indexes()
        self._commit()

    def renew(self) -> None:
        """The stream was made anew: set this state aside, and begin empty."""
        pending = self.store.count()
        log.warning("%s was made anew; %d entries of its earlier life were pending", self.stream, pending)
        had_ticks = bool(self.store.ticks())
        self._commit()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()
        if self._keep_old and (pending or had_ticks):
            self._path.rename(self._free_name())
        self._remove_files()
        self._open()
        self.renewals += 1

    def restart(self) -> None:
        """Begin empty again: retention overtook this view, and a checkpoint knows more."""
        self.close()
        self._remove_files()
        self._open()
        self.renewals += 1

    def begin(self, checkpoint: Checkpoint, first: int) -> None:
        """Begin with a checkpoint; `first` is the first offset that the stream still has."""
        self.restart()
        self._db.execute("BEGIN")
        adopt(checkpoint, self.store)
        self.store.flush()
        self._keep_trail(checkpoint.trail)
        self._db.execute("COMMIT")
        self._trail = checkpoint.trail
        if checkpoint.low < first:
            self._lost(first)

    def trimmed(self, first: int) -> None:
        """Retention took messages that this view had not folded, and no checkpoint tells what they said."""
        self._set.overtaken(first)
        self._lost(first)

    def _lost(self, first: int) -> None:
        log.error("%s was trimmed up to offset %d before it was read; entries there are lost", self.stream, first)
        self.lost_before = first

    def checkpoint(self) -> Checkpoint | None:
        """What another reader may begin with, or None where there can be none yet."""
        position = self.position()
        if position is None:
            return None
        found = take(self.stream, self.store, position[0] + 1, position[1].hex(), self._trail)
        if found is not None:
            self.span.forget(found.low)
        self._commit()
        return found

    def close(self) -> None:
        """Close the file; safe to repeat."""
        with contextlib.suppress(sqlite3.Error):  # it is closed, or its last folds are gone: they are read again
            self._commit()
        self._db.close()

    # What others ask; always through the follower's `query`.

    def facts(self) -> Facts:
        """Epoch, term and the log's time."""
        return self.store.facts()

    def verdicts(self, uuid: str) -> list[Verdict] | None:
        """The verdicts of a command, once it was folded."""
        return self.store.verdicts(uuid)

    def count(self) -> int:
        """How many are pending."""
        return self.store.count()

    def page(self, limit: int, offset: int = 0, sort: str = "due") -> list[Row]:
        """One page of the whole list; `sort` is one of `listing.SORTS`, with "-" before it downwards."""
        return self._listing.page(Search(sort=sort, limit=limit, offset=offset)).rows

    def search(self, search: Search) -> Page:
        """One page of what is searched for, and how much there is. Raises ValueError for a sort or `after` of none."""
        return self._listing.page(search)

    def targets(self, search: Search, limit: int) -> list[Target]:
        """The identities of all that is searched for, at most so many. Raises ValueError where they cannot be known."""
        return self._listing.targets(search, limit)

    def errors(self, limit: int) -> list[tuple[str, int]]:
        """The error classes of what is pending, and how many have each."""
        return self._listing.errors(limit)

    def names(self, limit: int) -> tuple[list[str], list[str]]:
        """The classes and queues of what is pending, at most so many of each."""
        return self._listing.names(limit)

    def next_due(self) -> float | None:
        """When the next unclaimed entry is due; None when none waits for a time, or while a long log is loaded."""
        return self.store.next_due() if self.store.has_index("entries_free") else None

    def of_jid(self, jid: str, limit: int = 100) -> list[Row]:
        """The entries of a jid, newest first, without what is long of them."""
        return self._listing.of_jid(jid, limit)

    def body(self, entry: str) -> bytes | None:
        """The whole of one entry as it came; None when it is not pending."""
        found = self.store.get(entry)
        return None if found is None else found.raw

    def index_some(self) -> bool:
        """One small step of the search index; whether there is more to do."""
        self._commit()
        return self._index is not None and self._index.step()

    def find(self, jid: str) -> list[Row]:
        """The entries of a jid, newest first."""
        return [row_of(entry) for entry in reversed(self.store.of_jid(jid))]

    # Earlier lives of the stream.

    def old(self) -> list[OldState]:
        """What was pending in earlier incarnations and is not yet appended again, oldest first."""
        files = sorted(self._path.parent.glob(f"{self.stream}.old-*.db"), key=lambda path: path.stat().st_mtime_ns)
        return [state for path in files if (state := _old_state(path)) is not None]

    def _free_name(self) -> Path:
        number = 1
        while (name := self._path.with_name(f"{self.stream}.old-{number}.db")).exists():
            number += 1
        return name

    # The file.

    def _open(self) -> None:
        self._uncommitted = False
        try:
            self._connect()
            if self._version() in (None, VERSION):
                self._use()
                return
            log.info("the view of %s was folded by another version: it rebuilds", self.stream)
        except sqlite3.DatabaseError as error:
            log.warning("the view of %s cannot be read (%s): it rebuilds", self.stream, error)
        self._db.close()
        self._remove_files()
        self._connect()
        self._use()

    def _connect(self) -> None:
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may take the last folds; they are read again

    def _version(self) -> str | int | None:
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
            return None
        row: tuple[str | int] | None = self._db.execute("SELECT value FROM meta WHERE name='version'").fetchone()
        return None if row is None else row[0]

    def _use(self) -> None:
        self.store = SqliteStore(self._db, indexes(self.stream) if self._lists else {})
        self.store.keep_meta("version", VERSION)
        self.span = Span(self._db)
        self._set = DelayedSet(self.stream, self.store)
        self._index = SearchIndex(self._db) if self._lists else None
        self._listing = Listing(self.store, self.stream, self._index)

        self._trail = self._kept_trail()

    def _begin(self) -> None:
        """Raises sqlite3.OperationalError when what was folded is gone: SQLite ends a transaction itself when any
        statement in it meets a full or broken disk. The reader is past those messages; only one that begins anew, from
        this view's position, folds them after all."""
        if self._uncommitted:
            raise sqlite3.OperationalError(f"the last folds of {self.stream} were undone by the disk: start anew")
        self._db.execute("BEGIN")

    def _commit(self) -> None:
        if self._uncommitted:
            self._db.execute("COMMIT")  # raises where the transaction is gone
            self._uncommitted = False
        self._committed = time.monotonic()

    def _kept_trail(self) -> tuple[Step, ...]:
        return tuple(Step(offset, crc) for offset, crc in json.loads(self.store.meta("trail") or "[]"))

    def _keep_trail(self, trail: tuple[Step, ...]) -> None:
        self.store.keep_meta("trail", json.dumps(trail))

    def _remove_files(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _old_state(path: Path) -> OldState | None:
    """What a set-aside file holds; None, and a loud word, for one that cannot be read. It stays where it is."""
    try:
        return OldState(path)
    except sqlite3.DatabaseError as error:
        log.error("%s holds what was pending when its stream was deleted, and cannot be read (%s)", path, error)
        return None


class OldState:
    """What was pending when a stream was deleted, in a file that was set aside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._store = SqliteStore(self._db)
        self.epoch = self._store.facts().epoch
        self.ticks = self._store.ticks()
        """The last tick of each recurring job."""

    def pages(self, size: int) -> Iterator[list[Pending]]:
        """All entries, in pages."""
        number = FIRST
        while page := self._store.all_after(number, size):
            number = page[-1][0]
            yield [entry for _, entry in page]

    def close(self) -> None:
        """Close the file and keep it; safe to repeat."""
        self._db.close()

    def set_aside(self) -> None:
        """Close the file and keep it under a name that `old` does not find."""
        self._db.close()
        self.path.rename(self.path.with_name(self.path.name.replace(".old-", f".late-{time.time_ns()}-")))

    def remove(self) -> None:
        """Close the file and delete it: all of it was appended again."""
        self._db.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
