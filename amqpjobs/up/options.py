"""The options of `amqpjobs up`: apart, because the program's `--help` must not load what they start."""

from __future__ import annotations

import argparse
import shlex
from typing import Any


def _also(text: str) -> tuple[str, list[str]]:
    name, equals, command = text.partition("=")
    words = shlex.split(command)
    if not (name and equals and words):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `amqpjobs up`."""
    several: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("-A", "--app", metavar="MODULE", help="a module of @job functions (may be repeated)", **several)
    parser.add_argument(
        "-q", "--queue", metavar="NAME[,WEIGHT]", help="a queue to take from (may be repeated)", **several
    )
    parser.add_argument("-c", "--concurrency", type=int, metavar="N", help="jobs at a time (default: 10)")
    parser.add_argument(
        "-t",
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="what running jobs get at the end (default: 5)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="where the dashboard listens (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8484, help="where the dashboard listens (default: 8484)")
    parser.add_argument(
        "--with",
        dest="also",
        type=_also,
        metavar="NAME=COMMAND",
        help="one more command to run beside them, started when all the rest is ready (may be repeated)",
        **several,
    )
