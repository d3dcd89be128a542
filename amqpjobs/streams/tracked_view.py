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
    """The file `{folder}/job_events.db`, for a follower to feed; one process holds the folder.

    With `keep_old`, the state of a stream that was made anew is set aside (`old()`): a leader brings it over.
    """

    def __init__(self, folder: Path, *, keep_old: bool = False) -> None:
        self.judged: list[Judged] = []
        """The verdicts of the messages that were folded last."""
        self.asked: list[tuple[str, Judged]] = []
        """Those of them that somebody waits for elsewhere, each with the address for the answer."""
        self.changed: set[int] = set()
        """The jobs that those messages changed."""
        self.renewals = 0
        """How often the stream was made anew under this view: what was appended before is not in it."""
        self.path = folder / f"{names.EVENTS}.db"
        self._keep_old = keep_old
        self.span: int = 0
        """Bytes of the log since all of it was last written again."""
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
        asked: list[tuple[str, Judged]] = []
        self._db.execute("BEGIN")
        try:
            for message in messages:
                found = self._set.fold(message.offset, message.body)
                judged += found
                if message.reply_to:
                    asked += [(message.reply_to, each) for each in found]
                self.span = 0 if b'"pages_end"' in message.body else self.span + len(message.body)
            self.store.flush()
            self.store.keep_meta("span", self.span)
            self.store.keep_meta("offset", messages[-1].offset)
            self.store.keep_meta("digest", messages[-1].digest)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            self.store.rolled_back()
            self.span = self.store.meta("span") or 0
            raise
        self.judged, self.asked, self.changed = judged, asked, self.store.take_changed()

    def expect(self, messages: int) -> None:
        """Nothing to prepare: each fold asks the indexes."""

    def arrive(self) -> None:
        """Nothing to build."""

    def renew(self) -> None:
        """The stream was made anew: set this state aside, and begin empty."""
        jobs = sum(self.store.counts().values())
        log.warning("%s was made anew; %d jobs of its earlier life were kept", names.EVENTS, jobs)
        if self._keep_old and (jobs or self.store.queues()):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()
            self.path.rename(self._free_name())
        self.restart()

    def restart(self) -> None:
        """Begin empty."""
        self._close_and_remove()
        self._open()
        self.renewals += 1

    def old(self) -> list[Path]:
        """The files of earlier lives of the stream that are not brought over yet, oldest first."""
        return sorted(self.path.parent.glob(f"{names.EVENTS}.old-*.db"), key=lambda path: path.stat().st_mtime_ns)

    def live_bytes(self) -> int:
        """What all that is kept takes on disk, about."""
        pages, size = (int(self._db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
        return pages * size

    def _free_name(self) -> Path:
        number = 1
        while (name := self.path.with_name(f"{names.EVENTS}.old-{number}.db")).exists():
            number += 1
        return name

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
        self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may take the last folds; they are read again
        self.store = TrackedStore(self._db)
        self._set = TrackedSet(self.store)
        self.span = self.store.meta("span") or 0

    def _close_and_remove(self) -> None:
        self._db.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
