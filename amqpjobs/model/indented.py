"""JSON for people: the same parts in the same order, digits as they came, with line breaks and indentation. Pure."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_STEP = "  "
SHORT = 72
"""Characters up to which a list or object without others inside stays on one line."""


def indented(text: str) -> str:
    """The text over several lines. What is no JSON comes out with its parts in order as well."""
    out: list[str] = []
    parts = _TOKEN.findall(text)
    depth, at = 0, 0
    while at < len(parts):
        part = parts[at]
        if part in "{[":
            line, end = _flat(parts, at)
            if line is not None:
                out.append(line)
                at = end
                continue
            depth += 1
            out.append(f"{part}\n{_STEP * depth}")
        elif part in "}]":
            depth = max(0, depth - 1)
            out.append(f"\n{_STEP * depth}{part}")
        elif part == ",":
            out.append(f",\n{_STEP * depth}")
        else:
            out.append(": " if part == ":" else part)
        at += 1
    return "".join(out)


def _flat(parts: list[str], start: int) -> tuple[str | None, int]:
    """What opens at `start` on one line, when it is short and holds nothing that opens; and where it ends."""
    line, length = [parts[start]], 1
    for at in range(start + 1, len(parts)):
        part = parts[at]
        if part in "{[":
            return None, start
        line.append({",": ", ", ":": ": "}.get(part, part))
        length += len(line[-1])
        if length > SHORT:
            return None, start
        if part in "}]":
            return "".join(line), at + 1
    return None, start
