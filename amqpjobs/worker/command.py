"""The command line of a worker: options, signals, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import io
import logging
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from amqpjobs import sync
from amqpjobs.jobs import registry
from amqpjobs.model import names
from amqpjobs.settings import Settings, load, redact
from amqpjobs.streams.errors import BrokerError
from amqpjobs.worker import apps, logs
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan

log = logging.getLogger("amqpjobs.worker")

EXIT_CANNOT_SERVE = 1
EXIT_USAGE = 2

PYTHONS_THRESHOLD = gc.get_threshold()
COLLECT_AFTER = 5000
"""Objects. More gains little, and what jobs leave behind in circles waits so long in memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The worker's options."""
    parser.add_argument("-A", "--app", action="append", metavar="MODULE", help="a module of @job functions; may repeat")
    parser.add_argument(
        "-q",
        "--queue",
        action="append",
        metavar="NAME[,WEIGHT]",
        help="a queue to take from, 'default' if none is given; may repeat. Without weights the first is always served"
        " before the second, with weights each in proportion",
    )
    parser.add_argument("-c", "--concurrency", type=_positive, metavar="N", help="jobs at a time (default: 10)")
    parser.add_argument(
        "-t", "--timeout", type=float, metavar="SECONDS", help="what running jobs get at a stop (default: 25)"
    )
    parser.add_argument(
        "--prefetch",
        type=_positive,
        metavar="N",
        help="jobs held per queue (default: 2 x concurrency, more of quick ones)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log each job's end too")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it is told to stop; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m amqpjobs.worker", description="Run jobs.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> int:
    """As `main`, with the options parsed. 0 after a stop, 1 when it cannot serve, 2 when it was called wrongly."""
    settings = load()
    logs.configure(logging.DEBUG if options.verbose else logging.INFO)
    try:
        plan = plan_of(options, settings)
        apps.load(options.app or settings.apps)
    except (apps.AppError, ValueError) as error:
        sys.stderr.write(f"amqpjobs worker: {error}\n")
        return EXIT_USAGE
    if not len(registry):
        sys.stderr.write("amqpjobs worker: no job is registered: name a module with @job functions with -A MODULE\n")
        return EXIT_USAGE
    sync.configure(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, plan))


def plan_of(options: argparse.Namespace, settings: Settings) -> Plan:
    """What was asked for, the command line before the settings. Raises ValueError for a queue that cannot be."""
    timeout = settings.stop_timeout if options.timeout is None else options.timeout
    if not 0 <= timeout < math.inf:
        raise ValueError("-t: a number of seconds, 0 or more")
    return Plan(
        queues=[_share(text) for text in options.queue or settings.queues],
        concurrency=options.concurrency or settings.concurrency,
        stop_timeout=timeout,
        prefetch=options.prefetch,
    )


async def _serve(settings: Settings, plan: Plan) -> int:
    launcher = Launcher(settings, plan)
    stop = asyncio.Event()
    _handle_signals(launcher, stop)
    try:
        await launcher.start()
    except BrokerError as error:
        await launcher.abort()
        sys.stderr.write(f"amqpjobs worker: {error}\n")
        return EXIT_CANNOT_SERVE
    log.info(
        "worker %s ready: %d jobs known, queues %s, concurrency %d, broker %s",
        launcher.identity.name,
        len(registry),
        ", ".join(share.name for share in plan.queues),
        plan.concurrency,
        redact(settings.url),
    )
    collect_less()
    failed = await _until(stop, launcher)
    log.info("stopping: %d jobs run, they have %g s", launcher.busy, plan.stop_timeout)
    await launcher.stop()
    log.info("stopped")
    return EXIT_CANNOT_SERVE if failed else 0


def collect_less() -> None:
    """Let the garbage collector look at what jobs leave behind less often, and never at what was there before them.

    Python looks after each 700 objects (2000 from 3.13 on), a handful of jobs: some 4 % of a quick job's CPU time.
    Thresholds that somebody has set where the jobs are defined (`gc.set_threshold`) stay.
    """
    gc.freeze()
    if gc.get_threshold() == PYTHONS_THRESHOLD:
        gc.set_threshold(max(COLLECT_AFTER, PYTHONS_THRESHOLD[0]), *PYTHONS_THRESHOLD[1:])


async def _until(stop: asyncio.Event, launcher: Launcher) -> bool:
    """Wait for the order to stop, or for a fault of ours; whether it was the fault."""
    told = asyncio.create_task(stop.wait())
    ordered = asyncio.create_task(launcher.told_to_stop.wait())
    failure = asyncio.create_task(launcher.failure())
    await asyncio.wait([told, ordered, failure], return_when=asyncio.FIRST_COMPLETED)
    failed = failure.done()
    if failed:
        log.error("a part of the worker ended by an error: %r", failure.result())
    for waiting in (told, ordered, failure):
        waiting.cancel()
    return failed


def _handle_signals(launcher: Launcher, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def quiet() -> None:
        log.info("quiet: no more jobs are taken")
        task = loop.create_task(launcher.quiet())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def interrupt() -> None:
        if stop.is_set():  # Ctrl-C again: whoever sits there does not want to wait
            launcher.hurry()
        stop.set()

    handlers: dict[str, Callable[[], Any]] = {
        "SIGTERM": stop.set,
        "SIGINT": interrupt,
        "SIGTSTP": quiet,
        "SIGTTIN": _dump_stacks,
    }
    for name, handler in handlers.items():
        loop.add_signal_handler(getattr(signal, name), handler)


def _dump_stacks() -> None:
    """Every thread's stack and every job's task, into the log."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        log.warning("stacks of all threads:\n%s", file.read())
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    log.warning("stacks of all tasks:\n%s", out.getvalue())


def _share(text: str) -> QueueShare:
    name, _, weight = text.partition(",")
    if not names.is_queue_name(name):
        raise ValueError(
            f"-q {text}: {name!r} cannot be a queue's name: 1 to 200 of ASCII letters, digits and ._-: can"
        )
    if weight and not (weight.isdigit() and int(weight) > 0):
        raise ValueError(f"-q {text}: a weight is a whole number above 0")
    return QueueShare(name, int(weight or 0))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop
