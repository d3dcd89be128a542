"""`amqpjobs conservation`: whether each job that was enqueued in a span ended exactly once, by what the lake holds.

It counts, and lists what waits, and what was lost, doubled or orphaned. Plain jobs are known by the enqueue log
(AMQPJOBS_ENQUEUE_LOG) or by their entry in scheduled_jobs. How many jobs wait in the queues is asked of the broker.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from amqpjobs.history import lag
from amqpjobs.history.conservation import PATIENCE, Case, Conservation, conservation
from amqpjobs.history.store import HistoryMissing, NoLake, lake_in
from amqpjobs.model import names
from amqpjobs.pipeline.reading import ask
from amqpjobs.pipeline.spans import add_span, written
from amqpjobs.settings import Settings, load
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.port import Connection

BROKEN = 3
"""The exit code when something is lost, doubled or orphaned."""
SHOWN = 20
_LISTS = ("waiting", "lost", "doubled", "orphaned")


def depths(settings: Settings, queues: Iterable[str]) -> Mapping[str, int]:
    """How many jobs wait in each of these queues, and in the queue of its bare name. Raises BrokerError."""

    async def look(connection: Connection) -> dict[str, int]:
        found = {}
        for queue in queues:
            places = [names.broker_queue(queue)] + ([] if names.is_reserved(queue) else [queue])
            states = [await connection.passive(place) for place in places]
            found[queue] = sum(state.ready for state in states if state is not None)
        return found

    return ask(settings, look)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: it holds; 1: it could not be done, and a line says why; 3: something is lost, doubled, orphaned."""
    options = _parser().parse_args(argv)
    settings = load()
    full = full_until(settings)
    try:
        found = conservation(
            lake_in(settings.lake_dir),
            options.since,
            options.until,
            now=full,
            depths=lambda queues: depths(settings, queues),
            patience=options.patience,
        )
    except (HistoryMissing, NoLake, BrokerError) as error:
        print(f"amqpjobs: {error}", file=sys.stderr)
        return 1
    print(json.dumps(_document(found)) if options.json else _text(found, options.since, options.until, full))
    return 0 if found.holds else BROKEN


def full_until(settings: Settings) -> float:
    """Up to when the lake holds all streams; 0 where the pipeline never caught up with one."""
    told = [each.since or 0.0 for each in lag.read(settings.lake_dir)]
    return min(told, default=time.time())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="amqpjobs conservation", description=__doc__)
    add_span(parser)
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="how long a job may take before it is missed (default: 3600)",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object, with all that is listed")
    return parser


def _document(found: Conservation) -> dict[str, object]:
    lists = {name: [case._asdict() for case in getattr(found, name)] for name in _LISTS}
    return {**found._asdict(), **lists, "tracked": found.tracked._asdict(), "holds": found.holds}


def _text(found: Conservation, since: float, until: float, full: float) -> str:
    lines = [
        f"jobs enqueued from {written(since)} to {written(until)} UTC; the lake holds all up to {written(full)}",
        f"{'enqueued':<14}{found.enqueued:>10}",
        f"{'ended once':<14}{found.ended_once:>10}   of them deleted: {found.deleted}",
        *(f"{name:<14}{len(getattr(found, name)):>10}" for name in _LISTS),
        f"apart: {found.without_jid} entries without a jid, {found.unreadable} that cannot be read,"
        f" {found.unlogged} jobs that ended and began before the enqueue log did",
    ]
    if found.log_since is None:
        lines.append("there is no enqueue log (AMQPJOBS_ENQUEUE_LOG=true keeps one): only scheduled jobs are joined")
    tracked = found.tracked
    states = ", ".join(f"{count} {state}" for state, count in tracked.states.items())
    lines.append(f"tracked jobs: {tracked.dispatched} dispatched, {tracked.ended} ended ({states or 'none'})")
    for name in _LISTS:
        lines += _listed(name, getattr(found, name))
    return "\n".join(lines)


def _listed(name: str, cases: Sequence[Case]) -> list[str]:
    if not cases:
        return []
    lines = [f"{name}:"]
    for case in cases[:SHOWN]:
        at = "" if case.at is None else written(case.at)
        lines.append(f"  {at:<19}  {case.jid}  {case.cls or ''}  {case.queue or ''}  {case.why}")
    return lines + ([f"  and {len(cases) - SHOWN} more (--json has all)"] if len(cases) > SHOWN else [])


if __name__ == "__main__":
    sys.exit(main())
