"""The view of `job_events`: tracked jobs in a `ViewFile`, and what the last fold said and changed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from amqpjobs.model import names
from amqpjobs.model.pending import Claim
from amqpjobs.model.tracked import Judged
from amqpjobs.model.tracked_fold import FOLD_VERSION, TrackedSet
from amqpjobs.streams.follow import Message
from amqpjobs.streams.tracked_store import LAYOUT, TrackedStore
from amqpjobs.streams.view_file import ViewFile, set_aside

log = logging.getLogger("amqpjobs.views")

VERSION = f"{FOLD_VERSION}.{LAYOUT}"
"""Of the fold and of the tables: a file of another one is rebuilt."""


class TrackedView(ViewFile):
    """The view of `job_events`."""

    cache_kib = 16 * 1024

    def __init__(self, folder: Path, *, keep_old: bool = False) -> None:
        self.judged: list[Judged] = []
        """The verdicts of the messages that were folded last."""
        self.asked: list[tuple[str, Judged]] = []
        """Those of them that somebody waits for elsewhere, each with the address for the answer."""
        self.changed: set[int] = set()
        """The jobs that those messages changed."""
        super().__init__(folder, names.EVENTS, version=VERSION, keep_old=keep_old)

    def _use(self, db: sqlite3.Connection) -> TrackedStore:
        self.store = TrackedStore(db)
        self._set = TrackedSet(self.store)
        self._undone()
        return self.store

    def _undone(self) -> None:
        self.span: int = self.store.meta("span") or 0
        """Bytes of the log since all of it was last written again."""

    def led(self) -> tuple[str | None, Claim | None]:
        """The stream's epoch, and the term that is current."""
        stand = self.store.stand()
        return stand.epoch, stand.term

    def _left(self) -> int:
        return sum(self.store.counts().values()) + len(self.store.queues())

    def _apply(self, messages: Sequence[Message]) -> None:
        judged: list[Judged] = []
        asked: list[tuple[str, Judged]] = []
        for message in messages:
            found = self._set.fold(message.offset, message.body)
            judged += found
            if message.reply_to:
                asked += [(message.reply_to, each) for each in found]
            self.span = 0 if b'"pages_end"' in message.body else self.span + len(message.body)
        self.judged, self.asked, self.changed = judged, asked, self.store.take_changed()

    def _flush(self) -> None:
        self.store.keep_meta("span", self.span)
        super()._flush()

    def renew(self) -> None:
        """The stream was made anew: set this state aside, and begin empty."""
        if self.store.stand().sealed:
            self.set_old_aside()
        super().renew()

    def set_old_aside(self) -> None:
        """The life that is folded is sealed, with or without what we hold of those before: it would bring back what
        ended since."""
        for path in self.old_files():
            log.warning("%s is sealed: what %s holds comes too late, if it was not brought over", names.EVENTS, path)
            set_aside(path)

    def expect(self, messages: int) -> None:
        """Nothing to prepare: each fold asks the indexes."""

    def live_bytes(self) -> int:
        """What all that is kept takes on disk, about."""
        pages, size = (int(self._db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
        return pages * size

    def trimmed(self, first: int) -> None:
        """Retention took messages that were not folded; what they said is not known."""
        log.error("%s was trimmed up to offset %d before it was read; what it said is lost", names.EVENTS, first)
