"""What this process and those below it took: of memory the most while it was looked at, and of CPU."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

import psutil

EVERY = 0.5
DRIVER, JVM, WORKERS, BROKER = KINDS = ("the driver's Python", "the JVM", "Python workers", "the broker")


def cpu_seconds() -> dict[str, float]:
    """Seconds of CPU so far, by kind of process."""
    me = psutil.Process()
    found = dict.fromkeys(KINDS, 0.0) | {DRIVER: sum(me.cpu_times()[:2])}
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            kind = _kind(child)
            # Of Python also what has ended: Spark starts processes for each batch.
            found[kind] += sum(child.cpu_times()[: 4 if kind == WORKERS else 2])
    return found


def _kind(child: psutil.Process) -> str:
    name = child.name()
    if name.startswith("python"):
        return WORKERS
    return JVM if name == "java" else BROKER


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
            found = dict.fromkeys(KINDS, 0) | {DRIVER: me.memory_info().rss}
            for child in me.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    found[_kind(child)] += child.memory_info().rss
            for name, size in found.items():
                self.most[name] = max(self.most.get(name, 0), size)
