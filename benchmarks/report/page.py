"""docs/benchmarks.md as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.report import chart, sections
from benchmarks.report.tables import table
from benchmarks.report.targets import Results

CHART = "benchmarks.svg"
WHEN = ("before", "after")
BUSY = 20.0
"""Percent of all cores that others may use before a figure is said to be doubtful."""
TITLE = "No-op jobs a second, two worker processes"

HEAD = """# Benchmarks

This page and its chart are written by `make bench`, from what it measured; nothing is filled in by hand. Absolute
figures hold for one machine only. Ratios come from the same run; they too differ from one kind of machine to another.
"""

METHOD = """## How it is measured

- Every product gets the same no-op job with the same arguments, and the same number of worker processes. Workers,
  broker or Redis, and the one who measures share the machine's cores.
- A warm-up of 300 jobs that leave a mark shows that a product really runs its jobs; it is not counted. Then the queue
  is filled, workers start, and the number of jobs that nobody has taken is asked ten times a second from outside: by a
  passive declare on RabbitMQ, by `LLEN` on Redis. The rate is that between 15 % and 90 % of the jobs, so neither
  starting nor running dry counts.
- Products take turns: each runs once, then each again. A figure is the median; ± is half the distance between the
  lowest and the highest run.
- Redis writes nothing to disk here, RabbitMQ's messages are persistent: see the column "kept how", and compare with
  care.
- "Bare yardstick" is `benchmarks/yardstick_worker.py`: what Python and the broker can do with one confirmed metric a
  job and nothing else that a worker needs. "Trial", where it is listed, is another of that kind, from before this
  project.
- A worker's CPU is that of its processes, without broker or Redis.
- Ten more jobs are enqueued by themselves before workers start, of every product: as long as the last thing that was
  written to a classic queue was a bulk, RabbitMQ 4 is slower, and our client alone ends one that way
  ([brokers.md](brokers.md#a-faster-rabbitmq)).
- "Room for heaps": RabbitMQ was started as `docker-compose.yml` starts it, for every product
  ([brokers.md](brokers.md#a-faster-rabbitmq)).

```
$ make bench                                   # everything; a private RabbitMQ of the host's package
$ make bench ONLY=noop,enqueue                 # a part; the rest of this page stays as it was
$ BENCH_URL=amqp://127.0.0.1:5672 make bench   # on a broker that runs; its management API at the port + 10,000,
                                               # or BENCH_MANAGEMENT_URL; each product in a virtual host of its own
$ BENCH_URLS="amqp://… amqp://…" make bench ONLY=brokers
$ BEFORE=../older make bench ONLY=noop         # another checkout of this project beside this one
```

`BENCH_RUNS` (3), `BENCH_SCALE` (1) and `BENCH_MINUTES` (25) make it shorter; `benchmarks/setup` says what it installs
where. Parts: `noop`, `enqueue`, `latency`, `async`, `threads`, `memory`, `start`, `payloads`, `brokers`.
"""


def written(results: Results) -> str:
    """The page, of all that was measured."""
    parts = [HEAD, *_machine(results)]
    if "noop" in results:
        parts += ["", f"![{TITLE}]({CHART})", ""]
    parts += ["", "## What we want, and where it stands", "", *sections.targets(results), ""]
    for title, key, render in _SECTIONS:
        if results.get(key, {}).get("figures"):
            parts += [f"## {title}", "", *render(results), ""]
    parts += [*_failures(results), METHOD, "## When, and how quiet it was", "", *_quiet(results), ""]
    return "\n".join(parts)


def drawn(results: Results) -> str:
    """The chart's SVG."""
    measured = results["noop"]
    facts = measured["machine"]
    note = f"{facts['broker']}, {facts['cores']} cores, {facts['date']}; line: lowest to highest run"
    return chart.drawn(TITLE, note, sections.bars(measured["figures"]))


def _figures(results: Results, key: str) -> Any:
    return results[key]["figures"]


def _no_op(results: Results) -> list[str]:
    figures = _figures(results, "noop")
    parts = [*sections.no_op_table(figures, results), "", "More worker processes, on as many cores as above:", ""]
    return [*parts, *sections.growth(figures), "", *sections.products(figures)]


_SECTIONS: tuple[tuple[str, str, Callable[[Results], list[str]]], ...] = (
    ("No-op jobs", "noop", _no_op),
    ("Enqueueing", "enqueue", lambda results: sections.enqueue(_figures(results, "enqueue"))),
    ("Latency", "latency", lambda results: sections.latency(_figures(results, "latency"))),
    ("Jobs that wait", "async", sections.waiting),
    ("Payloads", "payloads", lambda results: sections.payloads(_figures(results, "payloads"))),
    ("Broker versions", "brokers", lambda results: sections.brokers(_figures(results, "brokers"))),
    ("Start", "start", lambda results: sections.start(_figures(results, "start"))),
    ("Memory", "memory", lambda results: sections.memory(_figures(results, "memory"))),
)


def _machine(results: Results) -> list[str]:
    """Of the main part where there is one; and a warning where others used the machine meanwhile."""
    measured = results.get("noop") or next(iter(results.values()))
    facts = measured["machine"]
    busy = [key for key, each in results.items() if max(each[when]["busy_percent"] for when in WHEN) > BUSY]
    warning = f"**The machine was not quiet** for {', '.join(busy)} (last table): read those figures with care."
    return [
        *([warning, ""] if busy else []),
        f"Measured on {facts['cores']} cores ({facts['cpu']}), {facts['memory_gb']} GB, {facts['system']},"
        f" {facts['python']}, {facts['broker']}, where a table does not say otherwise.",
    ]


def _failures(results: Results) -> list[str]:
    lines = [f"- {what}: {why}" for measured in results.values() for what, why in measured["failures"].items()]
    return ["## What could not be measured", "", *lines, ""] if lines else []


def _quiet(results: Results) -> list[str]:
    rows = []
    for key, measured in results.items():
        facts, before, after = measured["machine"], measured["before"], measured["after"]
        rows.append(
            [
                key,
                facts["date"],
                f"`{facts['commit']}`",
                facts["broker"],
                f"{before['load'][0]}",
                f"{before['busy_percent']} %",
                f"{before['loop_ms']} / {after['loop_ms']}",
            ]
        )
    head = ["part", "date", "commit", "broker", "load before", "CPU used before", "empty loop before / after, ms"]
    return table(head, rows)
