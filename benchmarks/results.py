"""The file of results, and what is published of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.report import page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LATEST = ROOT / "benchmarks" / "results" / "latest.json"


def keep(scenario: str, measured: dict[str, Any]) -> None:
    """Put what one scenario gave in the place of what it gave before."""
    LATEST.parent.mkdir(exist_ok=True)
    text = json.dumps(load() | {scenario: measured}, indent=1)
    LATEST.write_text(text + "\n", "utf-8")


def load() -> dict[str, Any]:
    """All that was measured last, by scenario."""
    found: dict[str, Any] = json.loads(LATEST.read_text("utf-8")) if LATEST.exists() else {}
    return found


def publish() -> list[str]:
    """Write the page and its chart of all that was measured last; the names of what was written."""
    found = load()
    DOCS.joinpath("benchmarks.md").write_text(page.written(found), "utf-8")
    if found.get("noop", {}).get("figures"):
        DOCS.joinpath(page.CHART).write_text(page.drawn(found), "utf-8")
    return [str(path.relative_to(ROOT)) for path in (LATEST, DOCS / "benchmarks.md", DOCS / page.CHART)]
