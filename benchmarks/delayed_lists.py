"""How long a page, a count and a search take: `python -m benchmarks.delayed_lists [PENDING [DEAD]]`.

1,000,000 and 100,000 unless told otherwise. No broker: the entries are folded as a follower would hand them over.
Issue 5 asks for well under 100 ms.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from amqpjobs.model import names
from amqpjobs.streams.follow import Message
from amqpjobs.streams.listing import Search
from amqpjobs.streams.views import DelayedView
from benchmarks.delayed_site import bare_insert_rate, dead, job, scheduled

SEARCHES = (
    Search(sort="due"), Search(sort="-due"), Search(sort="failed_at"), Search(sort="jid"), Search(sort="class"),
    Search(sort="-queue"), Search(cls="Mailer"), Search(cls="RareJob", sort="jid"), Search(cls="Mailer", sort="jid"),
    Search(queue="mail", sort="-due"), Search(cls="Mailer", queue="mail"), Search(tag="t7"), Search(tag="all"),
    Search(q="user123@example.com"), Search(q="user12"), Search(q="example.com"), Search(q="email"),
    Search(q="invoice"), Search(q="sendem"), Search(q="mailer invoice"),
    Search(q="refused host7"), Search(q="invoice", cls="RareJob"), Search(q=job(77)["jid"][:8]), Search(q="nowhere"),
)  # fmt: skip
AGAIN = 5


def _fill(view: DelayedView, entries: Iterator[dict[str, Any]], count: int) -> None:
    view.expect(count)
    for first in range(0, count, 2000):
        messages = [Message(n, json.dumps(next(entries)).encode()) for n in range(first, min(count, first + 2000))]
        view.fold(messages)
    view.arrive()


def _timed(question: Callable[[], Any]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    question()
    return (time.perf_counter() - started) * 1000


def _index(view: DelayedView, count: int) -> None:
    steps: list[float] = []
    cpu = time.process_time()
    more = True
    while more:
        started = time.perf_counter()
        more = view.index_some()
        steps.append((time.perf_counter() - started) * 1000)
    steps.sort()
    spent = (time.process_time() - cpu) / count * 1e6
    print(
        f"  index of words: {spent:.0f} us of CPU an entry; a step takes {steps[len(steps) // 2]:.0f} ms, "
        f"99 % under {steps[int(len(steps) * 0.99)]:.0f} ms, the longest {steps[-1]:.0f} ms"
    )


def _ask(view: DelayedView, search: Search) -> None:
    first = _timed(lambda: view.search(search))
    rest = [_timed(lambda: view.search(search)) for _ in range(AGAIN)]
    page = view.search(search)
    asked = ", ".join(f"{name}={value}" for name, value in search._asdict().items() if value and name != "limit")
    number = f"{page.matching:,}" if page.exact else f"{page.matching:,} and more"
    print(f"  {asked:<34} first {first:7.1f} ms, then {sorted(rest)[AGAIN // 2]:6.1f} ms; {number} match", flush=True)


def _filled(folder: Path, stream: str, count: int, entries: Iterator[dict[str, Any]]) -> DelayedView:
    print(f"{stream}: {count:,} entries", flush=True)
    view = DelayedView(folder, stream, lists=True)
    _fill(view, entries, count)
    _index(view, count)
    return view


def _measure(view: DelayedView) -> None:
    count = view.count()
    print(f"{view.stream}, of {count:,}; count: {_timed(view.count):.2f} ms", flush=True)
    for search in SEARCHES:
        _ask(view, search)
    far = view.search(Search(sort="due", offset=count * 9 // 10))
    if far.after:
        after = far.after
        print(f"  the page after nine tenths: {_timed(lambda: view.search(Search(sort='due', after=after))):.1f} ms")


def main(pending: int, graves: int) -> None:
    """Both are open at once, as in a dashboard."""
    with tempfile.TemporaryDirectory(prefix="amqpjobs-bench-") as name:
        folder = Path(name)
        print(f"yardstick, bare SQLite inserts: {bare_insert_rate(folder):,.0f}/s")
        waiting = (scheduled(n, 2e9 + n * 7919 % pending) for n in range(pending))
        views = [
            _filled(folder, names.SCHEDULED, pending, waiting),
            _filled(folder, names.DEAD, graves, (dead(n) for n in range(graves))),
        ]
        for view in views:
            _measure(view)
        for view in views:
            view.close()


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(given[0] if given else 1_000_000, given[1] if len(given) > 1 else 100_000)
