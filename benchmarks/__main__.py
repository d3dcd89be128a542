"""`make bench`: measure, keep the results, write docs/benchmarks.md and its chart."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine, results
from benchmarks.broker import measured_broker
from benchmarks.processes import BenchmarkError
from benchmarks.scenarios import brokers, enqueue, latency, memory, noop, payloads, start, waiting
from benchmarks.scenarios.session import Session

SCENARIOS: dict[str, Callable[[Session], Any]] = {
    "start": start.measure,
    "enqueue": enqueue.measure,
    "latency": latency.measure,
    "async": waiting.asynchronous,
    "threads": waiting.threaded,
    "noop": noop.measure,
    "payloads": payloads.measure,
    "brokers": brokers.measure,
    "memory": memory.measure,
}
USAGE = f"ONLY={'|'.join(SCENARIOS)}, several with commas between"


def main() -> int:
    """Measure what ONLY names, or everything. 1 when something failed, 2 when it was called wrongly."""
    chosen = [each for each in os.environ.get("ONLY", "").split(",") if each] or list(SCENARIOS)
    if unknown := set(chosen) - set(SCENARIOS):
        sys.stderr.write(f"no such benchmark: {', '.join(sorted(unknown))}; {USAGE}\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory(prefix="amqpjobs-bench-") as folder:
        try:
            return _measured(chosen, Path(folder))
        except BenchmarkError as error:
            sys.stderr.write(f"make bench: {error}\n")
            return 1


def _measured(chosen: list[str], work: Path) -> int:
    with measured_broker(work) as broker:
        runs, scale = int(os.environ.get("BENCH_RUNS", "3")), float(os.environ.get("BENCH_SCALE", "1"))
        session = Session(broker, work, runs, scale, minutes=float(os.environ.get("BENCH_MINUTES", "25")))
        facts = machine.described() | {"broker": broker.version}
        session.say(f"{facts['commit']} on {facts['broker']}, {facts['cores']} cores")
        failed: dict[str, str] = {}
        written: list[str] = []
        for name in chosen:
            before = machine.quiet()
            session.failures = {}
            measured: Any = {}
            with session.survives(name):
                measured = SCENARIOS[name](session)
            failed |= session.failures
            kept = {"machine": facts, "before": before, "after": machine.quiet(), "failures": session.failures}
            results.keep(name, kept | {"figures": measured})
            written = results.publish()  # after each part: an end in between leaves a whole page
        session.say(f"written: {', '.join(written)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
