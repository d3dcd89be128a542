"""BullMQ over Redis, on Node."""

from __future__ import annotations

import json
import shutil
import subprocess

from benchmarks.peers.product import HOME, NO_DISK, Product, flush_redis
from benchmarks.place import Place
from benchmarks.processes import ROOT, Command

FOLDER = HOME / "bullmq"
MODULE = FOLDER / "node_modules" / "bullmq" / "package.json"


def _node(place: Place, *arguments: str) -> Command:
    program = ["node", str(ROOT / "benchmarks" / "apps" / "bullmq" / "app.js"), *arguments]
    return Command(program, {**place.environment(), "BENCH_CONCURRENCY": "100"}, FOLDER)


def _version() -> str:
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"bullmq {json.loads(MODULE.read_text())['version']}, node {node.lstrip('v')}"


BULLMQ = Product(
    key="bullmq",
    title="BullMQ",
    version=_version,
    how="100 jobs a process on its event loop",
    durability=f"{NO_DISK}; completed jobs not kept",
    jobs=14_000,
    enqueue=lambda place, jobs, job: _node(place, str(jobs), job),
    workers=lambda place, count: [_node(place, "work") for _ in range(count)],
    left=lambda place: place.lists("bull:bench:wait"),
    empty=flush_redis,
    missing=lambda: shutil.which("node") is None or not MODULE.exists(),
)
