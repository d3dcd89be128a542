"""How long questions about years take: `python -m benchmarks.pipeline_history [YEARS [CLASSES [RAW]]]`.

5 years, 100 classes and 10,000,000 raw rows unless told otherwise; no broker and no Spark. The lake is made as upkeep
leaves it, of about 250,000 runs a day for 100 classes, in a temporary folder (BENCH_LAKE names one, which is kept for
the next run). Issue 7 asks for less than 200 ms each. The yardstick is the plainest question there is: the number of
rows of `metrics_day`, which DuckDB reads from the files' footers. Two lines are of what is done once: the first
question of a new process, and `History.warm`. The first time of each other line is that of a process that is warm.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from amqpjobs.history.pieces import Unit
from amqpjobs.history.reader import History
from amqpjobs.history.store import Store, span
from amqpjobs.pipeline.lake import Lake
from benchmarks.pipeline_lake import UNTIL, fill, jid_of

DAY = 86_400.0
AGAIN = 9
SHARES = (0.5, 0.95, 0.99)
PACIFIC = ZoneInfo("America/Los_Angeles")


Question = Callable[[], object]


def questions(history: History, years: int, raw: int) -> Iterator[tuple[str, Question]]:
    """What the dashboard and the report ask."""
    for words, days in {"30 days": 30, "1 year": 365, f"{years} years": years * 365}.items():
        for name, question in _of_span(history, UNTIL - days * DAY, "hour" if days <= 30 else "day"):
            yield f"{words} {name}", question
    if raw:
        at = UNTIL - years * 365 * DAY * (1 - (raw // 3) / raw)
        yield "one job's life, its day known", partial(history.life, jid_of(raw // 3), at - 60, at + 60)
        yield "one job's life", partial(history.life, jid_of(raw // 3))


def _of_span(history: History, since: float, unit: Unit) -> Iterator[tuple[str, Question]]:
    one = "Class007"
    series = partial(history.series, since, UNTIL)
    yield f"by {unit}, all", partial(series, unit, quantiles=SHARES)
    yield f"by {unit}, one class", partial(series, unit, quantiles=SHARES, cls=one)
    yield f"by {unit}, one queue", partial(series, unit, quantiles=SHARES, queue="queue2")
    yield "by day of Los Angeles, all", partial(series, "day", zone=PACIFIC)
    yield "by day of Los Angeles, one class", partial(series, "day", zone=PACIFIC, cls=one, quantiles=SHARES)
    odd = (since + 9 * DAY + 5 * 3600 + 600, UNTIL - 600)
    yield "percentiles, all", partial(history.percentiles, *odd, SHARES)
    yield "percentiles, one class", partial(history.percentiles, *odd, SHARES, cls=one)
    yield "classes", partial(history.classes, *odd)
    yield "top errors", partial(history.top_errors, *odd)


def _timed(question: Question) -> tuple[float, float]:
    """Milliseconds that passed, and of CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    assert question(), "an empty answer"
    return (time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000


def _print(words: str, times: list[tuple[float, float]]) -> None:
    wall, cpu = (sorted(each[at] for each in times[1:]) for at in (0, 1))
    middle = len(wall) // 2
    print(f"{words:<46} {wall[middle]:>8.0f} {wall[-1]:>8.0f} {times[0][0]:>8.0f} {cpu[middle]:>8.0f}", flush=True)


def _once(words: str, question: Question) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    question()
    times = ((time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000)
    print(f"{words:<46} {'':>8} {'':>8} {times[0]:>8.0f} {times[1]:>8.0f}", flush=True)


def _first(folder: Path, years: int) -> object:
    return History(folder).series(UNTIL - years * 365 * DAY, UNTIL, "day", cls="Class007", quantiles=SHARES)


def main() -> None:
    """Fill a lake unless there is one, then ask."""
    years, classes, raw = (
        int(sys.argv[at].replace(",", "")) if len(sys.argv) > at else each
        for at, each in ((1, 5), (2, 100), (3, 10**7))
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("BENCH_LAKE") or temporary)
        if not (folder / "full").exists():
            began = time.monotonic()
            fill(Lake(folder), years, classes, raw)
            (folder / "full").touch()
            print(f"made {years} years of {classes} classes, {raw:,} raw rows, in {time.monotonic() - began:.0f} s")
        print(f"{'milliseconds':<46} {'median':>8} {'worst':>8} {'first':>8} {'CPU':>8}")
        _once(f"a process's first: {years} years, one class", partial(_first, folder, years))
        history = History(folder)
        _once("History.warm", history.warm)
        store = Store(folder)
        days = span(0, UNTIL)
        yardstick = lambda: store.rows(f"SELECT count(*) FROM {store.scan('metrics_day', days)}", [])  # noqa: E731
        _print("yardstick: rows of metrics_day", [_timed(yardstick) for _ in range(AGAIN)])
        for words, question in questions(history, years, raw):
            _print(words, [_timed(question) for _ in range(AGAIN)])
        print(f"most memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
