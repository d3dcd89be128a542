"""docs/brokers.md: each claim names the test that shows it, and that test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "brokers.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 15
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert named - defined == set()


def test_every_row_of_the_table_names_a_test() -> None:
    table = PAGE.split("## What differs")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    assert [row for row in rows if not re.search(r"`test_\w+(?:\.py)?`[^|]*\|$", row)] == []
