"""Orders from the shell: `amqpjobs pause|resume|quiet|stop|cancel|recurring`."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Callable
from typing import Any

EVERYBODY = "*"
RECURRING = {
    "pause": "no tick happens until it is resumed",
    "resume": "ticks happen again, from now on",
    "run": "its job runs once now, paused or not; prints the jid",
    "remove": "it is no more (what a file or code declares comes back at the next start)",
}


def add_commands(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    """The subcommands, which are run by `run`."""
    for name, line in {
        "pause": "no worker starts a job of this queue until it is resumed",
        "resume": "jobs of this queue are started again",
    }.items():
        queue = commands.add_parser(name, help=line, description=line)
        queue.add_argument("queue", metavar="QUEUE")
        queue.set_defaults(run=run, order=name)
    for name, line in {
        "quiet": "a worker takes no more jobs, and finishes what it runs",
        "stop": "a worker stops as by TERM",
    }.items():
        process = commands.add_parser(name, help=line, description=line)
        which = process.add_mutually_exclusive_group(required=True)
        which.add_argument(
            "process", nargs="?", metavar="PROCESS", help="hostname:pid:tag, or a nonce (see inspect processes)"
        )
        which.add_argument("--all", action="store_true", help="all workers that run now")
        process.set_defaults(run=run, order=name)
    line = "jobs are not run, wherever they wait; those that run are asked to stop"
    cancel = commands.add_parser("cancel", help=line, description=line)
    cancel.add_argument("jids", nargs="+", metavar="JID")
    cancel.set_defaults(run=run, order="cancel")
    _add_recurring(commands, run)


def _add_recurring(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    line = "recurring jobs: what there is, when each is due, and orders for one of them"
    group = commands.add_parser("recurring", help=line, description=line)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="all of them, with their last and next tick")
    listing.add_argument("--json", action="store_true", help="as one JSON object: recurring and refused")
    listing.set_defaults(run=run, order="recurring", verb="list")
    for verb, meaning in RECURRING.items():
        parser = verbs.add_parser(verb, help=meaning, description=meaning)
        parser.add_argument("name", metavar="NAME")
        parser.set_defaults(run=run, order="recurring", verb=verb)


def run(options: argparse.Namespace) -> int:
    """Give the order; prints it once it is on record. Raises BrokerError, ValueError."""
    import asyncio  # noqa: PLC0415 - see amqpjobs.cli

    if options.order == "recurring":
        from amqpjobs import recurring_shell  # noqa: PLC0415 - see amqpjobs.cli

        return recurring_shell.run(options, by=user())

    from amqpjobs.settings import load  # noqa: PLC0415 - see amqpjobs.cli

    asyncio.run(_order(load(), options))
    print(_said(options))
    return 0


async def _order(settings: Any, options: argparse.Namespace) -> None:
    from amqpjobs.clock import SystemClock  # noqa: PLC0415 - see amqpjobs.cli
    from amqpjobs.orders import Orders  # noqa: PLC0415 - see amqpjobs.cli
    from amqpjobs.streams.link import Link  # noqa: PLC0415 - see amqpjobs.cli

    clock = SystemClock()
    link = Link(settings, f"{options.order} from the shell", clock, fatal_first=True)
    await link.start()
    orders = Orders(link, by=user(), via="cli", clock=clock)
    try:
        match options.order:
            case "pause":
                await orders.pause(options.queue)
            case "resume":
                await orders.resume(options.queue)
            case "quiet":
                await orders.quiet(_process(options))
            case "stop":
                await orders.stop(_process(options))
            case _:
                await orders.cancel(options.jids)
    finally:
        await orders.close()
        await link.stop()


def _process(options: argparse.Namespace) -> str:
    process: str = EVERYBODY if options.all else options.process
    return process


def _said(options: argparse.Namespace) -> str:
    match options.order:
        case "pause" | "resume":
            return f"{options.order}d {options.queue}"
        case "quiet" | "stop":
            return f"asked {'all workers' if options.all else options.process} to {options.order}"
        case _:
            return "\n".join(f"cancelled {jid}" for jid in options.jids)


def user() -> str:
    """Who is at the shell."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "shell"
