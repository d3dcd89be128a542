"""A bar on a terminal while there is a backlog: messages, rate, time left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 24


class Progress:
    """Shows how much of the backlog is done; nothing where the output is no terminal, or when there is no backlog."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._shown = out.isatty()
        self._began = time.monotonic()
        self._done = 0

    def done(self, messages: int, behind: int) -> None:
        """So many more are in the lake, so many are still to come."""
        self._done += messages
        if self._shown and behind:
            self._out.write("\r" + self.bar(behind, time.monotonic() - self._began) + "\x1b[K")
            self._out.flush()
        elif not behind:
            self.close()

    def bar(self, behind: int, seconds: float) -> str:
        """The line as it is shown after so many seconds."""
        total, rate = self._done + behind, self._done / max(seconds, 1e-6)
        filled = WIDTH * self._done // total
        left = behind / max(rate, 1e-6)
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"[{bar}] {self._done:,} of {total:,} messages, {rate:,.0f}/s, {left:,.0f} s left"

    def close(self) -> None:
        """Leave the line, and begin again with the next backlog."""
        if self._shown and self._done:
            self._out.write("\n")
        self._done, self._began = 0, time.monotonic()
