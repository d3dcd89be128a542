"""The program `amqpjobs`. Each subcommand imports what it needs when it runs: `--help` loads no broker driver.

Exit status: 0 done, 1 it could not be done (one line on standard error says why), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amqpjobs import __version__, acting, operate

if TYPE_CHECKING:
    from amqpjobs.payload import EnqueueOptions
    from amqpjobs.settings import Settings

_MODULES = {
    "worker": "run jobs: amqpjobs worker -A MODULE -q default -c 10 (see its --help)",
    "scheduler": "release what is due: scheduled jobs and retries",
    "web": "serve the dashboard",
    "pipeline": "keep what the streams hold for years (Spark): amqpjobs pipeline run",
    "replay": "enqueue jobs of the past again, chosen in the lake by time and SQL (see its --help)",
    "conservation": "whether each job that was enqueued ended exactly once, by the lake (see its --help)",
    "report": "a month of the lake as a page with charts (see its --help)",
}
_OF_LAKE = ("replay", "conservation", "report")
"""Parts of the pipeline that need no Spark."""


class _Failed(Exception):
    """What went wrong, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name; default: the process's own); the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    # These parse their own options; argparse would claim some of them, such as --help.
    if words and words[0] in _MODULES:
        return _run_module(words[0], words[1:])
    options = _parser().parse_args(words)
    # What is worth saying is in the error; without a handler, Python would print warnings of the library beside it.
    logging.getLogger("amqpjobs").addHandler(logging.NullHandler())
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except _Failed as error:
        print(f"amqpjobs: {error}", file=sys.stderr)
        return 1


def _run_module(name: str, arguments: list[str]) -> int:
    """The same as `python -m amqpjobs.NAME ARGUMENTS`."""
    module = importlib.import_module(f"amqpjobs.pipeline.{name}" if name in _OF_LAKE else f"amqpjobs.{name}.__main__")
    status: int = module.main(arguments)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amqpjobs",
        description="Background jobs for any language that speaks AMQP 0-9-1.",
        epilog="AMQPJOBS_URL names the broker (default: amqp://guest:guest@127.0.0.1:5672/).",
    )
    parser.add_argument("--version", action="version", version=f"amqpjobs {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_up(commands)
    _add_enqueue(commands)
    for name, line in _MODULES.items():
        commands.add_parser(name, help=line, add_help=False)
    operate.add_commands(commands, _operate)
    acting.add_commands(commands, _act, duration=_duration, instant=_instant)
    _add_inspect(commands)
    setup = commands.add_parser("setup", help="declare exchanges, queues and streams on the broker")
    setup.add_argument("queues", nargs="*", metavar="QUEUE", help="job queues to declare (default: default)")
    setup.add_argument(
        "--compat",
        nargs="+",
        default=[],
        metavar="NAME",
        help="job queues that other clients publish to by their bare name: declares the queue NAME too, and workers"
        " take from both",
    )
    setup.set_defaults(run=_setup)
    broker = commands.add_parser("broker", help="run a private RabbitMQ node in the foreground")
    broker.add_argument(
        "--data", type=Path, metavar="DIR", help="where it keeps its data (default: in the state folder)"
    )
    broker.add_argument("--port", type=int, default=5672, help="its AMQP port on 127.0.0.1 (default: 5672)")
    broker.set_defaults(run=_broker)
    return parser


def _add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        help="a private broker, scheduler, worker and dashboard in one terminal",
        description="Runs a private broker (or the one that AMQPJOBS_URL names), the scheduler, a worker and the "
        "dashboard until Ctrl-C.",
    )
    from amqpjobs.up.options import add_arguments  # noqa: PLC0415 - light: argparse only

    add_arguments(up)
    up.set_defaults(run=_up)


def _up(options: argparse.Namespace) -> int:
    from amqpjobs.up.command import run  # noqa: PLC0415 - see the module's docstring

    return run(options)


def _broker(options: argparse.Namespace) -> int:
    from amqpjobs.broker.command import run  # noqa: PLC0415 - see the module's docstring

    return run(options)


# --- setup -----------------------------------------------------------------------------------------------------------


def _setup(options: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - see the module's docstring

    from amqpjobs.settings import load  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.errors import BrokerError  # noqa: PLC0415 - see the module's docstring

    try:
        remarks = asyncio.run(_declare(load(), options.queues or ["default"], options.compat))
    except BrokerError as error:
        raise _Failed(_worded(error)) from None
    for remark in remarks:
        print(f"note: {remark}")
    return 0


async def _declare(settings: Settings, queues: list[str], bare: list[str]) -> list[str]:
    from amqpjobs.model import names  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams import policies, topology  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.drivers import connect  # noqa: PLC0415 - see the module's docstring

    wrong = [name for name in [*queues, *bare] if not names.is_queue_name(name)]
    if wrong:
        raise _Failed(
            f"{wrong[0]!r} cannot be a queue's name: 1 to 200 of ASCII letters, digits and . _ - : are allowed"
        )
    connection = await connect(settings, name="setup")
    try:
        remarks = list(await topology.ensure(connection, settings))
        for kind, name in [
            ("exchange", names.JOBS_EXCHANGE),
            ("exchange", names.DEAD_EXCHANGE),
            ("exchange", names.UNROUTED),
            ("queue", names.LEADER_QUEUE),
            ("queue", names.UNROUTED),
            *(("stream", stream) for stream in names.STREAMS),
        ]:
            print(f"{kind:9} {name}")
        for queue in queues:
            remarks += await topology.ensure_queue(connection, settings, queue)
            print(f"{'queue':9} {names.broker_queue(queue)} (jobs for {queue!r})")
        for queue in bare:
            remarks += await topology.ensure_bare_queue(connection, settings, queue)
            print(f"{'queue':9} {queue} (jobs for {queue!r} too)")
    except ValueError as error:
        raise _Failed(str(error)) from None
    finally:
        await connection.close()
    return remarks + await policies.ensure(settings)


# --- orders and inspect ----------------------------------------------------------------------------------------------


def _operate(options: argparse.Namespace) -> int:
    from amqpjobs.streams.errors import BrokerError  # noqa: PLC0415 - see the module's docstring

    try:
        return operate.run(options)
    except BrokerError as error:
        raise _Failed(_worded(error)) from None
    except ValueError as error:
        raise _Failed(str(error)) from None


def _act(options: argparse.Namespace) -> int:
    from amqpjobs.streams.errors import BrokerError  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.state import NoStateFolder  # noqa: PLC0415 - see the module's docstring

    try:
        return acting.run(options)
    except BrokerError as error:
        raise _Failed(_worded(error)) from None
    except (ValueError, NoStateFolder, acting.CannotAct) as error:
        raise _Failed(str(error)) from None


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser("inspect", help="show what is in queues and streams now; reads only")
    inspect.add_argument("what", choices=["queues", "scheduled", "retries", "dead", "processes"])
    inspect.add_argument("--json", action="store_true", help="as one JSON object: total and items")
    inspect.add_argument("--limit", type=_count, default=20, metavar="N", help="so many at most (default: 20)")
    inspect.set_defaults(run=_inspect)
    line = "who ordered what, for which jobs, and what became of it; the newest first"
    audit = commands.add_parser("audit", help=line, description=line)
    audit.add_argument("--json", action="store_true", help="as one JSON object: total and items")
    audit.add_argument("--limit", type=_count, default=20, metavar="N", help="so many at most (default: 20)")
    audit.set_defaults(run=_inspect, what="audit")


def _inspect(options: argparse.Namespace) -> int:
    from amqpjobs import inspection  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.errors import BrokerError  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.state import NoStateFolder  # noqa: PLC0415 - see the module's docstring

    try:
        return inspection.run(options)
    except BrokerError as error:
        raise _Failed(_worded(error)) from None
    except NoStateFolder as error:
        raise _Failed(str(error)) from None


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


# --- enqueue ---------------------------------------------------------------------------------------------------------


def _add_enqueue(commands: Any) -> None:
    enqueue = commands.add_parser(
        "enqueue",
        help="enqueue a job and print its jid",
        description="Each argument is read as JSON where it is JSON (42, true, '{\"a\": 1}'), else as text. An option "
        "goes before CLASS; after it everything is an argument of the job.",
    )
    enqueue.add_argument("--queue", help="the queue (default: default)")
    when = enqueue.add_mutually_exclusive_group()
    when.add_argument(
        "--in", dest="delay", type=_duration, metavar="TIME", help="run it in so long: 90, 90s, 5m, 2h, 1d"
    )
    when.add_argument("--at", type=_instant, metavar="TIME", help="run it at: 2026-05-01T12:00 or seconds since 1970")
    enqueue.add_argument(
        "--retry", type=_retry, metavar="N", help="how often it is tried again (0 to 1000; default: 25)"
    )
    enqueue.add_argument("--priority", type=int, metavar="N", help="0 (last) to 10 (first)")
    enqueue.add_argument("job", metavar="CLASS", help="the name of the job")
    enqueue.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")
    enqueue.set_defaults(run=_enqueue)


def _enqueue(options: argparse.Namespace) -> int:
    from amqpjobs.settings import load  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.streams.errors import BrokerError  # noqa: PLC0415 - see the module's docstring
    from amqpjobs.sync import SyncClient  # noqa: PLC0415 - see the module's docstring

    given = {name: getattr(options, name) for name in ("queue", "retry", "priority")}
    chosen: EnqueueOptions = {key: value for key, value in given.items() if value is not None}  # type: ignore[assignment]
    arguments = tuple(_json_or_text(word) for word in options.args)
    with SyncClient(load()) as client:
        try:
            sent = client.submit(options.job, arguments, {}, chosen, delay=options.delay, at=options.at)
            print(sent.result())
        except BrokerError as error:
            raise _Failed(_worded(error)) from None
        except (TypeError, ValueError) as error:
            raise _Failed(str(error)) from None
    return 0


def _json_or_text(word: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return word


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90, 90s, 5m, 2h or 1d")
    return seconds


def _instant(text: str) -> datetime | float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-05-01T12:00 or 1777636800") from None


def _retry(text: str) -> int | bool:
    words = {"false": False, "true": True}
    try:
        return words[text.lower()] if text.lower() in words else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor true or false") from None


def _worded(error: Exception) -> str:
    hint = (
        "" if "AMQPJOBS_URL" in os.environ or "AMQPJOBS_URL" in str(error) else " (AMQPJOBS_URL names another broker)"
    )
    return f"{error or type(error).__name__}{hint}"
