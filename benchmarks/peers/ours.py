"""amqpjobs as it is checked out, in several profiles; and, where BEFORE names one, an older checkout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from amqpjobs import __version__
from benchmarks.peers.product import OURS, Product
from benchmarks.place import Place
from benchmarks.processes import ROOT, BenchmarkError, Command

QUEUE = "queue.default"
DURABILITY = "persistent message, confirmed to the sender; its metric confirmed, then acknowledged"


PROFILES: Mapping[str, Mapping[str, str]] = {
    "lean": {"AMQPJOBS_DRIVER": "lean"},
    "aiormq": {"AMQPJOBS_DRIVER": "aiormq"},
    "quorum": {"AMQPJOBS_DRIVER": "lean", "AMQPJOBS_QUEUE_TYPE": "quorum"},
    "plain": {"AMQPJOBS_DRIVER": "lean", "AMQPJOBS_MAX_PRIORITY": "0"},
}
"""Settings that are measured: the default first. The peers' queues are as those of `plain`."""


def environment(place: Place, profile: str, tree: Path = ROOT) -> dict[str, str]:
    """Our settings for a program of ours, of the checkout `tree`."""
    return {
        **place.environment(),
        "PYTHONPATH": f"{tree}:{ROOT}",
        "AMQPJOBS_URL": place.amqp,
        "AMQPJOBS_MANAGEMENT_URL": place.broker.management,
        **PROFILES[profile],
        "AMQPJOBS_STATE_DIR": str(place.work / "state"),
    }


def worker(place: Place, profile: str, concurrency: int = 100, tree: Path = ROOT) -> Command:
    """One worker process."""
    program = [OURS, "-m", "amqpjobs.worker", "-A", "benchmarks.jobs", "-c", str(concurrency)]
    return Command(program, environment(place, profile, tree), tree)


def scheduler(place: Place, profile: str) -> Command:
    """The leader, which tells each worker that starts what holds."""
    return Command([OURS, "-m", "amqpjobs.scheduler"], environment(place, profile, ROOT), ROOT)


def produce(place: Place, profile: str, *arguments: str, tree: Path = ROOT) -> Command:
    """Our producer (benchmarks/produce.py)."""
    return Command([OURS, "-m", "benchmarks.produce", *arguments], environment(place, profile, tree), tree)


def check(place: Place) -> None:
    """Raises BenchmarkError when a job of ours failed: what was measured then was no-one's job."""
    failed = [line for line in place.log.read_text("utf-8", "replace").splitlines() if " failed (try " in line]
    if failed:
        raise BenchmarkError(f"{len(failed)} jobs failed: {failed[0]}")


def commit(tree: Path) -> str:
    """The commit of a checkout, with a plus where its package was changed since; `unknown` where it is no clone."""
    found = _git(tree, "rev-parse", "--short", "HEAD") or "unknown"
    return found + "+" if _git(tree, "status", "--porcelain", "amqpjobs") else found


def _git(tree: Path, *arguments: str) -> str:
    command = ["git", "-C", str(tree), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _product(
    key: str,
    profile: str,
    title: str,
    jobs: int,
    tree: Path = ROOT,
    *,
    durability: str = DURABILITY,
) -> Product:
    return Product(
        key=key,
        title=title,
        version=lambda: f"amqpjobs {__version__}, {commit(tree)}",
        how="100 jobs a process on its event loop",
        durability=durability,
        jobs=jobs,
        enqueue=lambda place, jobs, job: produce(place, profile, "many", str(jobs), job, tree=tree),
        workers=lambda place, count: [worker(place, profile, tree=tree)] * count,
        left=lambda place: place.queue(QUEUE),
        empty=lambda place: place.depths.purge(QUEUE),
        missing=lambda: not (tree / "amqpjobs").exists(),
    )


_OLDER = Path(os.environ.get("BEFORE") or "/nonexistent")

LEAN = _product("ours-lean", "lean", "amqpjobs", 40_000)
QUORUM = _product(
    "ours-quorum",
    "quorum",
    "amqpjobs, quorum queues",
    60_000,
    durability=f"{DURABILITY}; each on disk (fsync) before its confirm",
)
PLAIN = _product("ours-plain", "plain", "amqpjobs, queues without priorities", 40_000)
AIORMQ = _product("ours-aiormq", "aiormq", "amqpjobs, driver aiormq", 12_000)
BEFORE_LEAN = _product("before-lean", "lean", "amqpjobs before the hot path", 16_000, _OLDER)
BEFORE_AIORMQ = _product("before-aiormq", "aiormq", "amqpjobs before it, driver aiormq", 8_000, _OLDER)
