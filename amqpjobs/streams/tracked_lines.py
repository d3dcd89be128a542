"""Who is next: the first jobs of each line that takers ask for (of a queue, of a type, of both), in order in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Tracked

KEPT = 1000
"""Jobs of one line that are read at once, and half of those that are kept."""
LINES = 64

Place = tuple[int, int, int]
"""Priority, place in the log, and number: their order is that of a line."""
Name = tuple[str | None, str | None]
"""Of a line: queue and type, of which one may be None."""


class _Line:
    """All queued jobs up to a place, in a heap; those are there too that are queued no longer."""

    __slots__ = ("heap", "upto")

    def __init__(self, places: list[Place]) -> None:
        self.heap = places  # which is in order
        self.upto = places[-1] if len(places) >= KEPT else None  # None: all that there are

    def enter(self, place: Place) -> None:
        if self.upto is not None and place > self.upto:
            return
        heapq.heappush(self.heap, place)
        if len(self.heap) > 2 * KEPT:
            self.heap = heapq.nsmallest(KEPT, self.heap)
            self.upto = self.heap[-1]


class Lines:
    """The lines that were asked for; `read` gives the first jobs of one, `get` a job as it is now."""

    def __init__(self, read: Callable[[Name, int], list[Place]], get: Callable[[int], Tracked | None]) -> None:
        self._read, self._get = read, get
        self._lines: dict[Name, _Line] = {}

    def first(self, name: Name) -> Tracked | None:
        """The queued job that is next."""
        line = self._lines.get(name) or self._load(name)
        while True:
            while line.heap:
                job = self._get(line.heap[0][2])
                if job is not None and job.state is State.QUEUED and place_of(job) == line.heap[0]:
                    return job
                heapq.heappop(line.heap)
            if line.upto is None:
                return None
            line = self._load(name)

    def enter(self, job: Tracked) -> None:
        """A job is queued now."""
        for name in ((job.queue, None), (None, job.type), (job.queue, job.type)):
            line = self._lines.get(name)
            if line is not None:
                line.enter(place_of(job))

    def clear(self) -> None:
        """Forget them: they are read again."""
        self._lines.clear()

    def _load(self, name: Name) -> _Line:
        if len(self._lines) >= LINES:
            self._lines.clear()
        line = self._lines[name] = _Line(self._read(name, KEPT))
        return line


def place_of(job: Tracked) -> Place:
    """Where a job stands in its lines."""
    return job.priority, job.place, job.id
