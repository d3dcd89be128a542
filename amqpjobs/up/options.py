"""The options of `amqpjobs up`: apart, because the program's `--help` must not load what they start."""

from __future__ import annotations

import argparse
import shlex


def _also(text: str) -> tuple[str, list[str]]:
    name, equals, command = text.partition("=")
    words = shlex.split(command)
    if not (name and equals and words):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `amqpjobs up`."""
    parser.add_argument("-A", "--app", required=True, metavar="MODULE", help="the module with your @job functions")
    parser.add_argument("-q", "--queue", action="append", metavar="NAME", help="a queue to work on (default: default)")
    parser.add_argument("-c", "--concurrency", type=int, default=10, metavar="N", help="jobs at once (default: 10)")
    parser.add_argument(
        "-t", "--timeout", type=float, default=5.0, metavar="SECONDS", help="for running jobs at the end (default: 5)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where the dashboard listens (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8484, help="where the dashboard listens (default: 8484)")
    parser.add_argument(
        "--with",
        dest="also",
        type=_also,
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="one more command to run beside them, started when all the rest is ready (may be repeated)",
    )
