"""Actions from the shell: `amqpjobs delete|trigger|reschedule|retry|kill|requeue|restore`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from amqpjobs.model.words import SETS, WORDS, Verdict

if TYPE_CHECKING:
    from amqpjobs.action import Action, Result
    from amqpjobs.sets import Desk

MOST_LINES = 100
"""Jobs told one by one."""


class CannotAct(Exception):
    """What was asked for cannot be done as it was asked; one line says what to do."""


def add_commands(
    commands: Any,
    run: Callable[[argparse.Namespace], int],
    *,
    duration: Callable[[str], float],
    instant: Callable[[str], Any],
) -> None:
    """The subcommands, which are run by `run`; `duration` and `instant` read times."""
    for word, meaning in WORDS.items():
        parser = commands.add_parser(word, help=meaning.line, description=meaning.line)
        parser.add_argument("jids", nargs="*", metavar="JID")
        if len(_sets(word)) > 1:
            parser.add_argument("--set", choices=_sets(word), help="where they wait (needed when it is not clear)")
        else:
            parser.set_defaults(set=_sets(word)[0])
        parser.add_argument("--entry", metavar="ENTRY", help="of one JID that waits several times, this one")
        if word == "restore":
            parser.add_argument("--action", metavar="ID", help="all that this action deleted (see amqpjobs audit)")
        else:
            parser.add_argument("--all", action="store_true", help="all in the set, or all that match")
            parser.add_argument("--class", dest="cls", metavar="CLASS", help="with --all: jobs of this class only")
            parser.add_argument("--queue", metavar="QUEUE", help="with --all: jobs for this queue only")
            parser.add_argument("--tag", metavar="TAG", help="with --all: jobs that have this tag only")
            parser.add_argument("--search", dest="q", metavar="WORDS", help="with --all: jobs with these words only")
        if word == "reschedule":
            when = parser.add_mutually_exclusive_group(required=True)
            when.add_argument("--in", dest="delay", type=duration, metavar="TIME", help="90, 90s, 5m, 2h, 1d")
            when.add_argument("--at", type=instant, metavar="TIME", help="2026-05-01T12:00 or seconds since 1970")
        parser.add_argument("--wait", type=duration, default=30.0, metavar="TIME", help="for the outcome (default: 30)")
        parser.set_defaults(run=run, word=word)
        for name, value in {"all": False, "action": None, "cls": None, "queue": None, "tag": None, "q": None}.items():
            if parser.get_default(name) is None:
                parser.set_defaults(**{name: value})


def run(options: argparse.Namespace) -> int:
    """Act, and print the outcomes; 1 unless all is done. Raises BrokerError, NoStateFolder, ValueError, CannotAct."""
    import asyncio  # noqa: PLC0415 - see amqpjobs.cli

    from amqpjobs.settings import load  # noqa: PLC0415 - see amqpjobs.cli

    _check(options)
    return asyncio.run(_act(load(), options))


def _check(options: argparse.Namespace) -> None:
    every = options.all or options.action is not None
    if bool(options.jids) == every:
        other = "--action ID" if options.word == "restore" else "--all"
        raise CannotAct(f"{options.word} takes one or more JIDs, or {other}")
    if not every and (options.cls or options.queue or options.tag or options.q):
        raise CannotAct("--class, --queue, --tag and --search choose among --all; without it, name JIDs")
    if options.all and options.set is None:
        raise CannotAct(f"--all of which? --set takes {', '.join(_sets(options.word))}")
    if options.entry is not None and len(options.jids) != 1:
        raise CannotAct("--entry takes exactly one JID")


async def _act(settings: Any, options: argparse.Namespace) -> int:
    from amqpjobs.sets import desk  # noqa: PLC0415 - see amqpjobs.cli

    streams = [SETS[name] for name in ([options.set] if options.set else _sets(options.word))]
    async with desk(settings, streams) as it:
        status = 0
        for action in await _begun(it, options, streams):
            finished = await action.ended(options.wait)
            status = max(status, _tell(action, finished, one_by_one=bool(options.jids)))
            if action.error is not None:
                raise action.error
        return status


async def _begun(it: Desk, options: argparse.Namespace, streams: Sequence[str]) -> list[Action]:
    from amqpjobs.action import Order  # noqa: PLC0415 - see amqpjobs.cli
    from amqpjobs.operate import user  # noqa: PLC0415 - see amqpjobs.cli
    from amqpjobs.streams.marks import Where  # noqa: PLC0415 - see amqpjobs.cli

    due = _due(options)
    if options.action is not None:
        begun = await it.actions.undo(options.action, by=user(), via="cli")
        if not begun:
            raise CannotAct(f"no deletion by an action {options.action} is on record (see amqpjobs audit)")
        return begun
    if not options.jids:
        order = Order(options.word, streams[0], user(), "cli", due)
        return [it.actions.begin_all(order, Where(options.cls, options.queue, options.tag, options.q))]
    placed = await it.placed(options.word, options.jids, streams, options.entry, choose="--set")
    orders = {stream: Order(options.word, stream, user(), "cli", due) for stream in streams}
    return [it.actions.begin(orders[stream], jobs) for stream, jobs in placed.items()]


def _due(options: argparse.Namespace) -> float | None:
    if options.word != "reschedule":
        return None
    from amqpjobs.client import moment  # noqa: PLC0415 - see amqpjobs.cli
    from amqpjobs.clock import SystemClock  # noqa: PLC0415 - see amqpjobs.cli

    return moment(options.at) if options.delay is None else SystemClock().wall() + options.delay


def _tell(action: Action, finished: bool, *, one_by_one: bool) -> int:
    """Say how it ended; 0 when all is done."""
    word, done, stream = action.order.word, WORDS[action.order.word].past, action.order.stream
    if one_by_one:
        for result in action.told[:MOST_LINES]:
            if result.verdict is Verdict.DONE:
                print(f"{done} {result.jid}")
            else:
                print(f"amqpjobs: {result.jid}: {_reason(result, action)}", file=sys.stderr)
    if not one_by_one or action.asked > MOST_LINES:
        print(f"{done} {action.counts.get(Verdict.DONE, 0):,} of {action.asked:,} in {stream}")
    if action.unknown or not finished:
        print(
            f"amqpjobs: the outcome of {word} is not known yet for {action.unknown:,} in {stream}: what was"
            f" appended takes effect all the same (amqpjobs audit, action {action.id})",
            file=sys.stderr,
        )
    return 0 if finished and action.counts.get(Verdict.DONE, 0) == action.asked else 1


def _reason(result: Result, action: Action) -> str:
    match result.verdict:
        case Verdict.CONFLICT if action.order.word == "restore":
            return "it waits already"
        case Verdict.CONFLICT:
            return "too late: the scheduler has claimed it, it is on its way"
        case Verdict.NOT_FOUND:
            return result.why or f"not found in {action.order.stream}"
        case _:
            return "not known yet"


def _sets(word: str) -> list[str]:
    return [name for name, stream in SETS.items() if stream in WORDS[word].streams]
