"""The most memory that this process and those below it took, while it was looked at."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

import psutil

EVERY = 0.5


class Memory:
    """Looks every half second while it is entered."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        """Bytes, by kind of process."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def show(self) -> None:
        """Print it."""
        for name, size in self.most.items():
            print(f"most memory of {name}: {size / 2**20:,.0f} MB")

    def _look(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(EVERY):
            found = {"the driver's Python": me.memory_info().rss, "the JVM": 0, "Python workers": 0}
            for child in me.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    found["the JVM" if child.name() == "java" else "Python workers"] += child.memory_info().rss
            for name, size in found.items():
                self.most[name] = max(self.most.get(name, 0), size)
