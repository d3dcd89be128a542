"""The file of results, and what is published of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LATEST = ROOT / "benchmarks" / "results" / "latest.json"


def keep(scenario: str, measured: dict[str, Any]) -> None:
    """Put what one scenario gave in the place of what it gave before."""
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps(load() | {scenario: measured}, indent=1) + "\n", "utf-8")


def load() -> dict[str, Any]:
    """All that was measured last, by scenario."""
    found: dict[str, Any] = json.loads(LATEST.read_text("utf-8")) if LATEST.exists() else {}
    return found


def publish() -> list[str]:
    """Write the page; the names of what was written."""
    return [str(LATEST)]
