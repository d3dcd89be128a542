"""`python -m amqpjobs.pipeline`: what the streams hold, into the lake, for years."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence

from amqpjobs.settings import Settings, load, redact
from amqpjobs.streams.errors import BrokerError

log = logging.getLogger("amqpjobs.pipeline")

MISSING = "the pipeline needs Spark: pip install 'amqpjobs[pipeline]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until INT or TERM. Exit code 0: stopped, or done; 1: it cannot go on, and a line said why."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        import pyspark  # noqa: F401, PLC0415 - an extra
    except ImportError:
        log.error("%s", MISSING)
        return 1
    return run(load(), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m amqpjobs.pipeline", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="command")
    reading = commands.add_parser("run", help="read the streams into the lake (AMQPJOBS_LAKE_DIR), and sum up")
    reading.add_argument("--once", action="store_true", help="end when all that is there is in the lake")
    reading.add_argument("--batch", type=int, default=250_000, metavar="N", help="messages at a time (default: 250000)")
    commands.add_parser("tidy", help="add up, compact and expire now, which `run` does every hour")
    for each in commands.choices.values():
        each.add_argument("--quick", action="store_true", help="a JVM that starts sooner and runs slower")
    return parser


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what the options say; the exit code."""
    from amqpjobs.pipeline.app import Pipeline  # noqa: PLC0415 - Spark
    from amqpjobs.pipeline.lake import LakeBusy  # noqa: PLC0415 - Spark's extra
    from amqpjobs.pipeline.run import GivenUp  # noqa: PLC0415 - Spark

    stopping: list[int] = []
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, _frame: stopping.append(number))
    try:
        with Pipeline(settings, quick=options.quick) as pipeline:
            log.info(
                "pipeline ready on %s as process %d, lake %s", redact(settings.url), os.getpid(), settings.lake_dir
            )
            if options.command == "tidy":
                pipeline.tidy()
            else:
                pipeline.run(once=options.once, most=options.batch, stopped=lambda: bool(stopping))
    except (LakeBusy, BrokerError, GivenUp) as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
