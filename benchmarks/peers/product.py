"""What the harness must know of a product to measure it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, Command

HOME = Path(os.environ.get("BENCH_HOME", "/var/tmp/peers"))
"""Where benchmarks/setup put the peers."""

PYTHON = str(HOME / "py" / "bin" / "python")
OURS = sys.executable

UNCONFIRMED = "persistent message, not confirmed to the sender; acknowledged after the job"
NO_DISK = "Redis, nothing on disk"


@dataclass(frozen=True, slots=True)
class Product:
    """One product in one configuration.

    `left` counts the jobs in its queue that no worker has taken: it is asked from outside, ten times a second, and
    costs every product one small command. Jobs taken and not done are few, and as many at the begin as at the end.
    """

    key: str
    title: str
    version: Callable[[], str]
    how: str
    """How its workers run jobs."""
    durability: str
    jobs: int
    """How many are queued for one run: some seconds' worth."""
    enqueue: Callable[[Place, int, str], Command]
    """So many jobs called `noop` or `tick`."""
    workers: Callable[[Place, int], Sequence[Command]]
    """So many worker processes."""
    left: Callable[[Place], Callable[[], int]]
    empty: Callable[[Place], None]
    """Take what is left out of its queue."""
    missing: Callable[[], bool] = lambda: False
    """Whether it is not installed here."""
    proves: bool = True
    """Whether it has the job `tick`."""


def python_peer(module: str) -> Callable[[Place, int, str], Command]:
    """How the Python peers enqueue."""
    return lambda place, jobs, job: Command([PYTHON, "-m", module, str(jobs), job], place.environment())


def python_version(*packages: str) -> Callable[[], str]:
    """Versions of the peers' packages, without running them."""

    def version() -> str:
        return ", ".join(f"{each} {_installed(each)}" for each in packages)

    return version


def _installed(package: str) -> str:
    folder = package.replace("-", "_")
    found = sorted(HOME.glob(f"py/lib/python3*/site-packages/{folder}-*.dist-info"))
    if not found:
        raise BenchmarkError(f"{package} is not installed: run benchmarks/setup")
    return found[-1].name.removesuffix(".dist-info").rpartition("-")[2]


def no_python_peers() -> bool:
    """Whether the peers' Python environment is missing."""
    return not Path(PYTHON).exists()


def flush_redis(place: Place) -> None:
    """Empty Redis: the product is alone there."""
    place.store.ask("FLUSHALL")
