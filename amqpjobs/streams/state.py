"""Where a process keeps its views: a folder of its own, locked, under the state directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path
from types import TracebackType

from amqpjobs.addresses import AddressError, brokers
from amqpjobs.settings import Settings

_SLOTS = 64


class NoStateFolder(Exception):
    """The state directory cannot be used; the message says why and what to do."""


class StateFolder:
    """A folder held by one process at a time.

    A process that starts again takes the folder that its forerunner left, and so its views: the lock, an advisory one
    that the kernel drops at any death, tells whose it is. A second process in the same role takes the next one.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    def close(self) -> None:
        """Let it go; safe to repeat."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def hold(settings: Settings, role: str) -> StateFolder:
    """The first free folder of `role` ("scheduler", "web") for the broker and virtual host of these settings.

    Raises NoStateFolder when the directory cannot be written, or when all 64 folders are held.
    """
    base = settings.state_dir / _place(settings.url)
    try:
        for slot in range(_SLOTS):
            folder = base / (role if slot == 0 else f"{role}-{slot}")
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return StateFolder(folder, lock)
    except OSError as error:
        raise NoStateFolder(f"cannot keep views in {base}: {error.strerror}; set AMQPJOBS_STATE_DIR") from error
    raise NoStateFolder(f"all {_SLOTS} folders for {role} in {base} are held by running processes")


def _place(url: str) -> str:
    """A folder name for broker and virtual host: readable, with a digest where two could read alike.

    Of several brokers the first one's: they are taken for nodes of one cluster.
    """
    try:
        first = brokers(url)[0]
        name = f"{first.host}_{first.port}_{first.vhost}"
    except AddressError as error:
        raise NoStateFolder(f"AMQPJOBS_URL: {error}") from None
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:80] + "-" + digest
