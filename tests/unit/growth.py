"""How the time that something takes grows with its size: what a test may say of time on any machine, however busy."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIES = 5


def in_proportion(work: Callable[[int], Callable[[], object]], small: int, large: int) -> bool:
    """Whether `large` takes about `large / small` times as long as `small`, and not the square of that.

    `work(size)` makes ready what is measured, which is run once. A busy machine makes one measurement worse, also in
    CPU time, but what is quadratic is so each time: one of five tries has to be good, four times the proportion
    included. No garbage is collected meanwhile: that goes through all that the tests before have left.
    """
    return any(_seconds(work(large)) < 4 * large / small * max(_seconds(work(small)), 0.002) for _ in range(TRIES))


def _seconds(run: Callable[[], object]) -> float:
    gc.disable()
    try:
        began = time.thread_time()
        run()
        return time.thread_time() - began
    finally:
        gc.enable()
