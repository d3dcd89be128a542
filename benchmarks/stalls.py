"""`python -m benchmarks.stalls ARGUMENTS`: `python -m amqpjobs.web ARGUMENTS` with its event loop watched.

At each SIGUSR1 it writes a line `stalls {…}` to stderr, of the time since the line before, in ms: `wall`, the longest
that a callback came late which was due; `held`, the same without what the loop's thread waited for a processor (the
kernel tells it), which is what a busy machine adds; `cpu`, the most processor time that one callback of the loop used,
and `by`, where it was when a second thread looked.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
import traceback
from asyncio.events import Handle
from pathlib import Path
from typing import Any

from amqpjobs.web import __main__ as web

TICK = 0.005
"""Seconds between two looks at how late the loop is."""
_SCHEDULED = Path("/proc/thread-self/schedstat")


class Stalls:
    """The worst since the last report. Made and used in the loop's thread."""

    def __init__(self) -> None:
        self._wall = self._held = self._cpu = 0.0
        self._by = ""
        self._began, self._seen, self._loops = 0.0, "", threading.get_ident()
        self._due: tuple[float, float] | None = None
        self._run: Any = Handle._run

    def install(self) -> None:
        """Time each callback of every loop of this process, and report at SIGUSR1."""
        timed, run = self._timed, self._run

        def watched(handle: Handle) -> None:
            timed(handle, run)

        Handle._run = watched  # type: ignore[assignment,method-assign]
        signal.signal(signal.SIGUSR1, lambda *_: self.report())
        threading.Thread(target=self._look, daemon=True).start()

    def report(self) -> None:
        """One line to stderr; then begin anew."""
        told = {"wall": self._wall, "held": self._held, "cpu": self._cpu}
        figures = {name: round(1000 * value, 1) for name, value in told.items()}
        print(f"stalls {json.dumps({**figures, 'by': self._by})}", file=sys.stderr, flush=True)
        self._wall = self._held = self._cpu = 0.0
        self._by = ""

    def _look(self) -> None:
        """Note what a callback is at that takes long."""
        while True:
            time.sleep(TICK)
            if self._began and time.monotonic() - self._began > 4 * TICK:
                calls = traceback.extract_stack(sys._current_frames()[self._loops])
                self._seen = " ".join(f"{Path(each.filename).name}:{each.lineno}" for each in calls[-7:])

    def _timed(self, handle: Handle, run: Any) -> None:
        if self._due is None:
            self._tick(asyncio.get_running_loop())
        self._began, before = time.monotonic(), time.thread_time()
        run(handle)
        self._began = 0.0
        used = time.thread_time() - before
        if used > self._cpu:
            self._cpu, self._by = used, self._seen or repr(handle)[-200:]
        self._seen = ""

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now, waited = loop.time(), _waited()
        if self._due is not None:
            late = now - self._due[0]
            self._wall = max(self._wall, late)
            self._held = max(self._held, late - (waited - self._due[1]))
        self._due = (now + TICK, waited)
        loop.call_at(now + TICK, self._tick, loop)


def _waited() -> float:
    """Seconds that this thread was ready to run and had no processor."""
    return int(_SCHEDULED.read_text().split()[1]) / 1e9


if __name__ == "__main__":
    Stalls().install()
    sys.exit(web.main(sys.argv[1:]))
