"""Figures and tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; columns but the first are to the right where all their cells begin with a digit or sign."""
    lines = ["| " + " | ".join(head) + " |"]
    numeric = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(head))]
    lines.append("|" + "|".join("---:" if each and column else "---" for column, each in enumerate(numeric)) + "|")
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _is_number(cell: str) -> bool:
    bare = cell.strip("* ")
    return not bare or bare[0].isdigit() or bare[0] in "–±<"


def number(value: float) -> str:
    """As many digits as mean something: 12,345; 123; 12.3; 1.23."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")


def figured(figure: Mapping[str, Any]) -> str:
    """A median with its spread: half the distance from the lowest run to the highest."""
    spread = (figure["high"] - figure["low"]) / 2 / figure["median"] if figure["median"] else 0.0
    return number(figure["median"]) + (f" ± {100 * spread:.0f} %" if figure["runs"] > 1 else "")


def size(count: int) -> str:
    """Bytes as people write them."""
    return f"{count} B" if count < 1_000 else f"{count // 1_000} KB"
