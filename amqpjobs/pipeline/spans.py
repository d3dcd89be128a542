"""A span of time on a command line: `--from TIME --to TIME`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add both options, as `since` and `until` in seconds since 1970."""
    for name, dest, words in (("--from", "since", "ISO-8601 (UTC) or seconds"), ("--to", "until", "exclusive")):
        parser.add_argument(name, dest=dest, type=_time, required=True, metavar="TIME", help=words)


def written(at: float) -> str:
    """The time for people, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _time(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        when = datetime.fromisoformat(word)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
