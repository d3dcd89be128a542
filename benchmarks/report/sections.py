"""The page's sections, each of one scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.report.chart import Bar
from benchmarks.report.tables import figured, number, size, table
from benchmarks.report.targets import TARGETS, Results, no_op

Figures = Mapping[str, Any]
OURS = ("ours-lean", "ours-quorum", "ours-plain", "ours-aiormq")
YARDSTICKS = ("yardstick", "trial")
BEFORE = ("before-lean", "before-aiormq")
PROFILES = {
    "lean": "driver `lean` (the default)",
    "quorum": "the same, quorum queues",
    "aiormq": "driver `aiormq`",
    "yardstick": "bare yardstick",
}


def targets(results: Results) -> list[str]:
    """Every target, met or missed."""
    rows = []
    for rating in (target.rate(results) for target in TARGETS):
        target = rating.target
        unit = f" {target.unit}" if target.unit else ""
        verdict = {None: "not measured", True: "met", False: "**missed**"}[rating.met]
        measured = "–" if rating.value is None else f"{_apart(rating.value, target.limit)}{unit}"
        rows.append([target.figure, f"{target.bound} {number(target.limit)}{unit}", measured, verdict])
    return table(["figure", "wanted", "measured", ""], rows)


def _apart(value: float, limit: float) -> str:
    """With as many digits as it takes to see on which side of the limit it is."""
    short = number(value)
    return f"{value:.4g}" if value != limit and short == number(limit) else short


def no_op_table(figures: Figures, results: Results) -> list[str]:
    """All products with two worker processes, the fastest first, and our rate as a multiple of each."""
    rows = []
    shown = [key for key in figures if "rate" in figures[key]["workers"].get("2", {})]
    for key in sorted(shown, key=lambda key: -no_op(results, key)):
        product, runs = figures[key], figures[key]["workers"]["2"]
        ratio = no_op(results, "ours-lean") / no_op(results, key) if "ours-lean" in shown else None
        title = f"**{product['title']}**" if key == "ours-lean" else product["title"]
        cpu = number(runs["worker_cpu_us"]["median"])
        rows.append([title, figured(runs["rate"]), "–" if ratio is None else number(ratio), cpu])
    head = ["product", "jobs/s", "amqpjobs is × as fast", "worker's CPU, µs a job"]
    return table(head, rows)


def products(figures: Figures) -> list[str]:
    """Versions, how jobs are run and kept, and how fast each enqueues."""
    rows = []
    for product in figures.values():
        enqueued = product["workers"].get("2", {}).get("enqueue_rate")
        rate = figured(enqueued) if enqueued else "–"
        rows.append([product["title"], product["version"], product["how"], product["durability"], rate])
    return table(["product", "version", "jobs run", "kept how", "enqueued, jobs/s"], rows)


def growth(figures: Figures) -> list[str]:
    """One, two and four worker processes."""
    rows = []
    for product in figures.values():
        if len(product["workers"]) > 1:
            by = product["workers"]
            cells = [figured(by[count]["rate"]) if "rate" in by.get(count, {}) else "–" for count in "124"]
            rows.append([product["title"], *cells])
    return table(["worker processes", "1", "2", "4"], rows)


def enqueue(figures: Figures) -> list[str]:
    """Confirmed enqueueing."""
    rows = [
        [
            PROFILES[key],
            figured(found["many"]),
            figured(found["single_p50_ms"]) if "single_p50_ms" in found else "–",
            figured(found["single_p99_ms"]) if "single_p99_ms" in found else "–",
        ]
        for key, found in figures.items()
    ]
    return table(["one process", "`enqueue_many`, jobs/s", "`enqueue` p50, ms", "p99, ms"], rows)


def latency(figures: Figures) -> list[str]:
    """Enqueue to start."""
    rows = [[PROFILES[key], figured(found["p50_ms"]), figured(found["p99_ms"])] for key, found in figures.items()]
    return table(["enqueue to start at 200 jobs/s", "p50, ms", "p99, ms"], rows)


def waiting(results: Results) -> list[str]:
    """Jobs that wait, on the loop and in threads."""
    words = {"async": "10 ms on the event loop, 100 at a time", "threads": "1 ms in 10 threads"}
    rows = []
    for key, kind in words.items():
        if found := results.get(key, {}).get("figures"):
            rows.append([kind, figured(found["rate"]), figured(found["bare"]), number(found["ideal"])])
    return table(["one worker process, jobs that wait", "jobs/s", "the same waits without amqpjobs", "ideal"], rows)


def memory(figures: Figures) -> list[str]:
    """Resident memory over many jobs."""
    rows = [[f"{point['jobs']:,}", number(point["rss_mb"])] for point in figures["points"]]
    first, last = figures["channels"]
    said = f"Open channels in the virtual host: {first} at the begin, {last} at the end."
    return [*table(["jobs done", "resident memory, MB"], rows), "", said]


def start(figures: Figures) -> list[str]:
    """A worker's start."""
    rows = [[PROFILES[key], figured(found["seconds"])] for key, found in figures.items()]
    return table(["a worker's start to its first job", "seconds"], rows)


def payloads(figures: Figures) -> list[str]:
    """By the size of the arguments."""
    rows = [[size(int(key)), figured(found["rate"]), figured(found["enqueue_rate"])] for key, found in figures.items()]
    return table(["arguments", "run by 2 processes, jobs/s", "enqueued by one, jobs/s"], rows)


def brokers(figures: Figures) -> list[str]:
    """By the broker's version, classic queues and quorum queues."""
    rows = [
        [f"{key}, {kind} queues", figured(found["rate"]), figured(found["enqueue_rate"])]
        for key, kinds in figures.items()
        for kind, found in kinds.items()
    ]
    return table(["broker", "no-op jobs/s, 2 processes", "enqueued by one, jobs/s"], rows)


def bars(figures: Figures) -> list[Bar]:
    """The chart's: all products with two worker processes, but for what we were before."""
    found = []
    for key, product in figures.items():
        rate = product["workers"].get("2", {}).get("rate")
        if rate and key not in BEFORE:
            kind = "ours" if key in OURS else "bare" if key in YARDSTICKS else "bar"
            found.append(Bar(product["title"], kind, rate["median"], rate["low"], rate["high"]))
    return found
