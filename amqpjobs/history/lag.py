"""How far the lake is behind the streams, as the pipeline wrote it down last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

FILE = "lag.json"
PROMETHEUS = "lag.prom"
FIGURES = {
    "messages": ("pipeline_behind_messages", "Messages of the stream that are not in the lake."),
    "since": ("pipeline_behind_since_seconds", "The lake holds what was appended before (seconds since 1970)."),
    "at": ("pipeline_told_seconds", "When the pipeline told these figures (seconds since 1970)."),
}
"""What Prometheus gets of a `Lag`: the name after `amqpjobs_`, and what it is."""


class Lag(NamedTuple):
    """Of one stream: messages that were not in the lake at `at`; all that came before `since` is (None: not known)."""

    stream: str
    messages: int
    since: float | None
    at: float


def read(folder: Path) -> list[Lag]:
    """What was written last; empty where no pipeline ever ran, or while its file cannot be read."""
    try:
        return [Lag(**each) for each in json.loads((folder / FILE).read_bytes())]
    except (OSError, ValueError, TypeError):
        return []


def write(folder: Path, lags: list[Lag]) -> None:
    """Write it down, for `read`, and as Prometheus' text for a collector of text files."""
    _replace(folder / FILE, json.dumps([each._asdict() for each in lags]))
    _replace(folder / PROMETHEUS, prometheus(lags))


def prometheus(lags: list[Lag]) -> str:
    """The figures in Prometheus' text format."""
    lines = []
    for field, (short, about) in FIGURES.items():
        name = f"amqpjobs_{short}"
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        values = [(each.stream, getattr(each, field)) for each in lags]
        lines += [f'{name}{{stream="{stream}"}} {value}' for stream, value in values if value is not None]
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    written = path.with_name(path.name + ".new")
    written.write_text(text)
    written.replace(path)  # nobody reads half of it
