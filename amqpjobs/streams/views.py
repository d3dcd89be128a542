"""A delayed set's view: the state of its fold in a `ViewFile`, and what leaders and lists ask of it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from amqpjobs.model import names
from amqpjobs.model.checkpoint import Checkpoint, adopt, take
from amqpjobs.model.delayed import FOLD_VERSION, DelayedSet
from amqpjobs.model.pending import Claim, Facts, Pending
from amqpjobs.model.protocol import Target
from amqpjobs.model.words import Verdict
from amqpjobs.streams.entry_table import LAYOUT
from amqpjobs.streams.follow import Message
from amqpjobs.streams.listing import Listing, Page, Search, indexes
from amqpjobs.streams.rows import Row, row_of
from amqpjobs.streams.search_index import SearchIndex
from amqpjobs.streams.span import Span
from amqpjobs.streams.sqlite_store import FIRST, SqliteStore
from amqpjobs.streams.view_file import ViewFile, remove, set_aside

log = logging.getLogger("amqpjobs.views")

VERSION = f"{FOLD_VERSION}.{LAYOUT}"
"""Of the fold and of the tables: a file of another one is rebuilt."""

LONG = 10_000
"""Messages from which on a backlog is loaded without indexes."""

_ASKED: Mapping[str, Sequence[str]] = {
    names.SCHEDULED: (),
    names.RETRIES: ("entries_jid",),
    names.DEAD: ("entries_jid",),
}
"""The indexes that the fold itself asks, for each entry."""


class DelayedView(ViewFile):
    """The view of one delayed stream.

    With `lists`, it has what pages of any size and search need; without, pages are sorted as they are asked for, and
    text and tags are not found.
    """

    cache_kib = 32 * 1024
    """With the 2 MiB that are the rule, each row of a large set costs reads."""

    def __init__(self, folder: Path, stream: str, *, keep_old: bool = False, lists: bool = False) -> None:
        self.lost_before: int | None = None
        """The first offset that was left when a trim past this view's position was noticed, else None."""
        self._lists = lists
        super().__init__(folder, stream, version=VERSION, keep_old=keep_old)

    # The follower's side.

    def _use(self, db: sqlite3.Connection) -> SqliteStore:
        self.store = SqliteStore(db, indexes(self.stream) if self._lists else {})
        self.span = Span(db)
        self._set = DelayedSet(self.stream, self.store)
        self._index = SearchIndex(db) if self._lists else None
        self._listing = Listing(self.store, self.stream, self._index)
        return self.store

    def _apply(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._set.fold(message.offset, message.body, message.headers)
            self.span.add(message.offset, len(message.body))
        self.store.flush()

    def _undone(self) -> None:
        self.span.rolled_back()

    def led(self) -> tuple[str | None, Claim | None]:
        """The stream's epoch, and the term that is current."""
        facts = self.facts()
        return facts.epoch, facts.term

    def _left(self) -> int:
        return self.store.count() + len(self.store.ticks())

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
        self.commit()

    def begin(self, checkpoint: Checkpoint, first: int) -> None:
        """Begin with a checkpoint; `first` is the first offset that the stream still has."""
        self.restart()
        self._db.execute("BEGIN")
        adopt(checkpoint, self.store)
        self._trail, self._uncommitted = checkpoint.trail, True
        if checkpoint.low < first and checkpoint.upto <= first:
            self._set.overtaken(first)  # all that it vouches for is gone: what the leader carries must be believed
        self.commit()
        if checkpoint.low < first:
            self._lost(first)

    def trimmed(self, first: int) -> None:
        """Retention took messages that this view had not folded, and no checkpoint tells what they said."""
        self._set.overtaken(first)
        self._lost(first)

    def _lost(self, first: int) -> None:
        log.error("%s was trimmed up to offset %d before it was read; entries there are lost", self.stream, first)
        self.lost_before = first

    def restart(self) -> None:
        """Begin empty; nothing is known to be lacking."""
        super().restart()
        self.lost_before = None

    def checkpoint(self) -> Checkpoint | None:
        """What another reader may begin with, or None where there can be none yet."""
        position = self.position()
        if position is None:
            return None
        found = take(self.stream, self.store, position[0] + 1, position[1].hex(), self._trail)
        if found is not None:
            self.span.forget(found.low)
        self.commit()
        return found

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
        self.commit()
        return self._index is not None and self._index.step()

    def find(self, jid: str) -> list[Row]:
        """The entries of a jid, newest first."""
        return [row_of(entry) for entry in reversed(self.store.of_jid(jid))]

    # Earlier lives of the stream.

    def old(self) -> list[OldState]:
        """What was pending in earlier incarnations and is not yet appended again, oldest first."""
        return [state for path in self.old_files() if (state := _old_state(path)) is not None]


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
        set_aside(self.path)

    def remove(self) -> None:
        """Close the file and delete it: all of it was appended again."""
        self._db.close()
        remove(self.path)
