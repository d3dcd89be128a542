"""What the figures were measured on, and whether it was quiet."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.ours import commit
from benchmarks.processes import ROOT


def described() -> dict[str, Any]:
    """Processor, memory, system, Python and the commit that is measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(ROOT),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def quiet() -> dict[str, Any]:
    """Load, the CPU that others use while we wait (percent of all cores), and how long a fixed calculation takes."""
    psutil.cpu_times_percent()
    busy = psutil.cpu_percent(interval=2.0)
    return {
        "load": [round(each, 2) for each in os.getloadavg()],
        "busy_percent": busy,
        "steal_percent": round(getattr(psutil.cpu_times_percent(), "steal", 0.0), 1),
        "loop_ms": round(min(_loop() for _ in range(5)) * 1000, 1),
    }


def _loop() -> float:
    """Seconds for a million rounds of a loop that does nothing."""
    started = time.perf_counter()
    for _ in range(1_000_000):
        pass
    return time.perf_counter() - started


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
