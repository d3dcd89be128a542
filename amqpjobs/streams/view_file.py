"""The file of a view: what was folded, the offset reached and the trail that leads there, in one SQLite transaction.

A view is disposable: without its file it rebuilds from the stream. The file belongs to one process (state.py locks
its folder); within the process the follower hands it to one thread at a time.
"""

from __future__ import annotations

import abc
import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from amqpjobs.model.pending import Claim
from amqpjobs.model.trail import LENGTH, Step, continued, step
from amqpjobs.streams.follow import Message

log = logging.getLogger("amqpjobs.views")

COMMIT_EVERY = 0.25
"""Seconds between commits while message follows message. What comes and goes within as much hardly sees the disk, and
each page that several folds change is written once; a kill costs no more than reading those messages again."""

LOG_PAGES = 16_384
"""Pages of 4 KiB that SQLite's log holds before they go to the file, on which the disk is waited for. With the thousand
that are the rule that was at every second batch of due jobs, which lie all over the file."""


class Tables(Protocol):
    """What is in the file."""

    def flush(self) -> None:
        """Write what is kept in memory."""

    def rolled_back(self) -> None:
        """Forget what was cached of a transaction that did not commit."""

    def meta(self, name: str) -> Any:
        """One remembered value, or None."""

    def keep_meta(self, name: str, value: Any) -> None:
        """Remember one value."""

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""


class ViewFile(abc.ABC):
    """The view of one stream in the file `{folder}/{stream}.db`, for a follower to feed.

    With `keep_old`, the state of a stream that was made anew is set aside, so that a leader can bring it over; without
    it, it is dropped.
    """

    cache_kib: ClassVar[int]
    """Memory for pages of the file."""

    def __init__(self, folder: Path, stream: str, *, version: str, keep_old: bool) -> None:
        self.stream = stream
        self.renewals = 0
        """How often the stream was made anew under this view: what was appended before is not in it."""
        self.path = folder / f"{stream}.db"
        self._version = version
        self._keep_old = keep_old
        self._committed = 0.0
        self._position: tuple[int, bytes] | None = None
        self._trail: tuple[Step, ...] = ()
        self._open()

    # What it is a view of.

    @abc.abstractmethod
    def _use(self, db: sqlite3.Connection) -> Tables:
        """Build what folds into the file and what asks it."""

    @abc.abstractmethod
    def _apply(self, messages: Sequence[Message]) -> None:
        """Fold messages in order, in a transaction that is open."""

    @abc.abstractmethod
    def _undone(self) -> None:
        """Forget what is known of a transaction that did not commit, beside what the tables forget."""

    @abc.abstractmethod
    def led(self) -> tuple[str | None, Claim | None]:
        """The stream's epoch, and the term that is current."""

    @abc.abstractmethod
    def _left(self) -> int:
        """How many of those are there that are to be kept when the stream is made anew."""

    def _flush(self) -> None:
        """Write what is kept in memory, before a transaction ends."""
        self._tables.flush()

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        return self._tables.last_seq(source)

    # The follower's side.

    def position(self) -> tuple[int, bytes] | None:
        """The offset reached and the digest of the message there; None when nothing was folded yet."""
        return self._position

    def trail(self) -> tuple[Step, ...]:
        """What the log must hold for this view to be of it: its last messages that were folded (or, until a view is
        past the checkpoint that it began with, those before that checkpoint's end)."""
        return self._trail

    def fold(self, messages: Sequence[Message]) -> None:
        """Fold messages in order, all or none, together with what was folded in the same moment."""
        if not messages:
            return
        self._check()
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        try:
            self._apply(messages)
            self._position = messages[-1].offset, messages[-1].digest
            self._trail = continued(self._trail, [step(each.offset, each.body) for each in messages[-LENGTH:]])
            self._uncommitted = True
            if time.monotonic() - self._committed >= COMMIT_EVERY:
                self.commit()
        except BaseException:
            self._undo()
            raise

    def arrive(self) -> None:
        """The tail was reached."""
        self.commit()

    def renew(self) -> None:
        """The stream was made anew: set this state aside, and begin empty."""
        left = self._left()
        log.warning("%s was made anew; %d of its earlier life were left", self.stream, left)
        self.commit()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()
        if self._keep_old and left:
            self.path.rename(self._free_name())
        self.restart()

    def restart(self) -> None:
        """Begin empty."""
        self.close()
        self._remove_files()
        self._open()
        self.renewals += 1

    def commit(self) -> None:
        """Write all that was folded into the file. Raises sqlite3.Error where the disk does not take it."""
        if self._uncommitted:
            self._check()
            self._flush()
            self._tables.keep_meta("offset", self._position and self._position[0])
            self._tables.keep_meta("digest", self._position and self._position[1])
            self._tables.keep_meta("trail", json.dumps(self._trail))
            self._db.execute("COMMIT")
            self._uncommitted = False
        self._committed = time.monotonic()

    def close(self) -> None:
        """Close the file; safe to repeat."""
        with contextlib.suppress(sqlite3.Error):  # it is closed, or its last folds are gone: they are read again
            self.commit()
        self._db.close()

    # Earlier lives of the stream.

    def old_files(self) -> list[Path]:
        """The files of earlier lives of the stream that are not brought over yet, oldest first."""
        return sorted(self.path.parent.glob(f"{self.stream}.old-*.db"), key=lambda path: path.stat().st_mtime_ns)

    def _free_name(self) -> Path:
        number = 1
        while (name := self.path.with_name(f"{self.stream}.old-{number}.db")).exists():
            number += 1
        return name

    # The file.

    def _open(self) -> None:
        self._uncommitted = False
        try:
            self._connect()
            if self._kept_version() in (None, self._version):
                self._adopt()
                return
            log.info("the view of %s was folded by another version: it rebuilds", self.stream)
        except sqlite3.DatabaseError as error:
            log.warning("the view of %s cannot be read (%s): it rebuilds", self.stream, error)
        self._db.close()
        self._remove_files()
        self._connect()
        self._adopt()

    def _connect(self) -> None:
        self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA cache_size=-{self.cache_kib}")
        self._db.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may take the last folds; they are read again

    def _kept_version(self) -> str | int | None:
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
            return None
        row: tuple[str | int] | None = self._db.execute("SELECT value FROM meta WHERE name='version'").fetchone()
        return None if row is None else row[0]

    def _adopt(self) -> None:
        self._tables = self._use(self._db)
        self._tables.keep_meta("version", self._version)
        self._know_position()

    def _know_position(self) -> None:
        offset, digest = self._tables.meta("offset"), self._tables.meta("digest")
        self._position = None if offset is None else (offset, digest)
        self._trail = tuple(Step(offset, crc) for offset, crc in json.loads(self._tables.meta("trail") or "[]"))

    def _check(self) -> None:
        """Raises sqlite3.OperationalError when what was folded is gone: SQLite ends a transaction itself when any
        statement in it meets a full or broken disk. The reader is past those messages; only one that begins anew, from
        this view's position, folds them after all."""
        if self._uncommitted and not self._db.in_transaction:
            raise sqlite3.OperationalError(f"the last folds of {self.stream} were undone by the disk: start anew")

    def _undo(self) -> None:
        if self._db.in_transaction:  # SQLite ends it itself when the disk is full
            self._db.execute("ROLLBACK")
        self._tables.rolled_back()
        self._undone()
        self._know_position()

    def _remove_files(self) -> None:
        remove(self.path)


def remove(path: Path) -> None:
    """Delete a view's file, which is closed."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def set_aside(path: Path) -> None:
    """Keep the file of an earlier life, which is closed, under a name that `old_files` does not find."""
    path.rename(path.with_name(path.name.replace(".old-", f".late-{time.time_ns()}-")))
