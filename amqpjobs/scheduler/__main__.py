"""`python -m amqpjobs.scheduler`: lead, or stand by until the leader is gone."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from amqpjobs.clock import SystemClock
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.schedules import BadSchedules
from amqpjobs.service import loop_factory
from amqpjobs.settings import Settings, load, redact
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.state import NoStateFolder

log = logging.getLogger("amqpjobs.scheduler")

SWITCH = 0.0005
"""Seconds for which a thread may keep another from going on. A view's thread gives the interpreter up at each row: with
the usual 5 ms a hundred rows took half a second while the loop was busy."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until INT or TERM. Exit code 0: stopped; 1: it cannot serve, and a line said why."""
    parser = argparse.ArgumentParser(prog="amqpjobs scheduler", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    options = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(serve(load()))


async def serve(settings: Settings) -> int:
    """Start, wait for a signal, stop."""
    try:
        scheduler = Scheduler(settings, SystemClock())
    except BadSchedules as error:
        log.error("%s", error)
        return 1
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    try:
        await scheduler.start()
    except (BrokerError, NoStateFolder) as error:
        log.error("%s", error)
        return 1
    log.info("scheduler ready on %s as %s", redact(settings.url), scheduler.identity)
    stopped = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(scheduler.failure())
    try:
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            log.error("%s", failed.result())
            return 1
    finally:
        stopped.cancel()
        failed.cancel()
        await scheduler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
