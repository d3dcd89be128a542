"""Which jobs of a run the broker has confirmed, on disk: so that a run that is repeated enqueues the others only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class Ledger:
    """A file with a jid a line, to which one writer adds; `others` are files that others wrote in the same run."""

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        self._path = path
        files = [file for file in {path, *others} if file.exists()]
        self.done = {jid for file in files for jid in file.read_text().split()}

    def add(self, jids: Iterable[str]) -> None:
        """These are enqueued."""
        added = list(jids)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            # The line break comes first: half a line that a killed process left spoils no other.
            file.writelines(f"\n{jid}" for jid in added)
            file.flush()
            os.fsync(file.fileno())
        self.done.update(added)
