"""A chart of horizontal bars as SVG, with colours for light pages and for dark ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.report.tables import number

WIDTH, RIGHT = 760, 90
LETTER = 7.3
"""Pixels that a letter of a label may be wide: fonts differ, and a label that is cut names nobody."""
ROW, BAR, TOP, BOTTOM = 30, 18, 44, 12

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 15px }
.bar { fill: #8c959f } .ours { fill: #1a7f37 } .bare { fill: none; stroke: #8c959f; stroke-dasharray: 3 2 }
.span { stroke: #1f2328; stroke-width: 1.5 } .note { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #656c76 } .ours { fill: #3fb950 } .bare { stroke: #9198a1 }
  .span { stroke: #e6edf3 } .note { fill: #9198a1 }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One product: `kind` is `ours`, `bar` (a peer) or `bare` (a yardstick)."""

    label: str
    kind: str
    median: float
    low: float
    high: float


def drawn(title: str, note: str, bars: Sequence[Bar]) -> str:
    """The chart: longest bar first, a line on each from its lowest to its highest run."""
    ordered = sorted(bars, key=lambda bar: -bar.median)
    most = max((bar.high for bar in ordered), default=1.0) or 1.0
    height = TOP + ROW * len(ordered) + BOTTOM + 18
    box = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    left = round(18 + LETTER * max((len(bar.label) for bar in ordered), default=0))
    for place, bar in enumerate(ordered):
        parts += _bar(bar, TOP + ROW * place, left, (WIDTH - left - RIGHT) / most)
    parts.append(f'<text class="note" x="8" y="{height - 10}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, top: int, left: int, scale: float) -> list[str]:
    length, low, high = bar.median * scale, left + bar.low * scale, left + bar.high * scale
    middle = top + BAR / 2
    return [
        f'<text x="{left - 10}" y="{top + 14}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect class="{bar.kind}" x="{left}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<line class="span" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
        f'<text x="{max(high, left + length) + 8:.1f}" y="{top + 14}">{number(bar.median)}</text>',
    ]
