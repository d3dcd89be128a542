"""How far the lake is behind the streams, as the pipeline wrote it down last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

FILE = "lag.json"
PROMETHEUS = "lag.prom"
_HELP = {
    "messages": "amqpjobs_pipeline_behind_messages Messages of the stream that are not in the lake.",
    "since": "amqpjobs_pipeline_behind_since_seconds When the lake last held all of the stream (seconds since 1970).",
}


class Lag(NamedTuple):
    """Of one stream: messages that were not in the lake at `at`, and when it last held all of them (None: never)."""

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
    for field, told in _HELP.items():
        name = told.partition(" ")[0]
        lines += [f"# HELP {told}", f"# TYPE {name} gauge"]
        values = [(each.stream, getattr(each, field)) for each in lags]
        lines += [f'{name}{{stream="{stream}"}} {value}' for stream, value in values if value is not None]
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    written = path.with_name(path.name + ".new")
    written.write_text(text)
    written.replace(path)  # nobody reads half of it
