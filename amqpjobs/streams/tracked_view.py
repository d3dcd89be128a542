"""The view of `job_events`: tracked jobs, the offset reached and that message's digest in one SQLite transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from amqpjobs.model import names
from amqpjobs.model.tracked import Judged
from amqpjobs.model.tracked_fold import FOLD_VERSION, TrackedSet
from amqpjobs.streams.follow import Message
from amqpjobs.streams.tracked_store import LAYOUT, TrackedStore

log = logging.getLogger("amqpjobs.views")

VERSION = f"{FOLD_VERSION}.{LAYOUT}"
"""Of the fold and of the tables: a file of another one is rebuilt."""
CACHE_KIB = 16 * 1024


class TrackedView:
    """The file `{folder}/job_events.db`, for a follower to feed; one process holds the folder."""

    def __init__(self, folder: Path) -> None:
        self.judged: list[Judged] = []
        """The verdicts of the messages that were folded last."""
        self.changed: set[int] = set()
        """The jobs that those messages changed."""
        self.renewals = 0
        """How often the stream was made anew under this view: what was appended before is not in it."""
        self._path = folder / f"{names.EVENTS}.db"
        self._open()

    def position(self) -> tuple[int, bytes] | None:
        """The offset reached and the digest of the message there; None when nothing was folded yet."""
        offset, digest = self.store.meta("offset"), self.store.meta("digest")
        return None if offset is None else (offset, digest)

    def fold(self, messages: Sequence[Message]) -> None:
        """Fold messages in order, in one transaction."""
        if not messages:
            return
        judged: list[Judged] = []
        self._db.execute("BEGIN")
        try:
            for message in messages:
                judged += self._set.fold(message.offset, message.body)
            self.store.flush()
            self.store.keep_meta("offset", messages[-1].offset)
            self.store.keep_meta("digest", messages[-1].digest)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            self.store.rolled_back()
            raise
        self.judged, self.changed = judged, self.store.take_changed()

    def expect(self, messages: int) -> None:
        """Nothing to prepare: each fold asks the indexes."""

    def arrive(self) -> None:
        """Nothing to build."""

    def renew(self) -> None:
        """The stream was made anew: begin empty."""
        self._close_and_remove()
        self._open()
        self.renewals += 1

    def trimmed(self, first: int) -> None:
        """Retention took messages that were not folded; what they said is not known."""
        log.error("%s was trimmed up to offset %d before it was read; what it said is lost", names.EVENTS, first)

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()

    def _open(self) -> None:
        try:
            self._connect()
            if self.store.meta("version") in (None, VERSION):
                self.store.keep_meta("version", VERSION)
                return
            log.info("the view of %s was folded by another version: it rebuilds", names.EVENTS)
        except sqlite3.DatabaseError as error:
            log.warning("the view of %s cannot be read (%s): it rebuilds", names.EVENTS, error)
        self._close_and_remove()
        self._connect()
        self.store.keep_meta("version", VERSION)

    def _connect(self) -> None:
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may take the last folds; they are read again
        self.store = TrackedStore(self._db)
        self._set = TrackedSet(self.store)

    def _close_and_remove(self) -> None:
        self._db.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
