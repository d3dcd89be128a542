"""`amqpjobs replay`: jobs of the past once more, chosen in the lake by time and a condition in SQL.

It only shows what it would enqueue, unless --yes is given. A replay has an id (made of its choice, unless --id gives
one), and each of its jobs a jid made of that id and its old jid: the same replay run twice enqueues each job once. Its
jobs carry `replay` (the id) and `replay_of` (the old jid); `amqpjobs audit` has all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.history.past import TABLES, BadCondition, PastJob, past_jobs
from amqpjobs.history.store import HistoryMissing, NoLake, lake_in
from amqpjobs.model import names, text
from amqpjobs.orders import Orders
from amqpjobs.pipeline.ledger import Ledger
from amqpjobs.pipeline.spans import add_span, written
from amqpjobs.settings import Settings, load
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Properties

WINDOW = 100
"""Jobs that are put on record, and enqueued, at a time."""
SAMPLES = 5


def ledger_of(folder: Path, replay: str) -> Ledger:
    """Which jobs of a replay the broker has: a file in the lake."""
    return Ledger(folder / "replays" / replay)


def new_jid(replay: str, jid: str) -> str:
    """The jid of a job in a replay: always the same."""
    return hashlib.blake2b(f"{replay}\n{jid}".encode(), digest_size=12).hexdigest()


def message(replay: str, past: PastJob, now: float) -> Outgoing:
    """The job as it is enqueued again: as it was, with a jid and a beginning of its own. Raises text.NotJson."""
    jid = new_jid(replay, past.jid)
    begun = {"jid": jid, "queue": past.queue, "retry_count": 0, "enqueued_at": now, "created_at": now}
    body = text.with_members(past.job.encode(), {**begun, "replay": replay, "replay_of": past.jid}, ("stall_count",))
    priority = json.loads(body).get("priority")
    known = priority if isinstance(priority, int) and 0 <= priority <= names.MAX_PRIORITY else None
    return Outgoing(body, names.JOBS_EXCHANGE, past.queue, Properties(message_id=jid, priority=known))


async def run(settings: Settings, replay: str, jobs: Sequence[PastJob], *, rate: float) -> int:
    """Enqueue the jobs that the ledger does not have, at most `rate` a second; how many. Raises BrokerError."""
    ledger, link = ledger_of(settings.lake_dir, replay), Link(settings, "amqpjobs replay", SystemClock())
    orders = Orders(link, by=getpass.getuser(), via="cli", clock=SystemClock())
    wanted = [job for job in jobs if new_jid(replay, job.jid) not in ledger.done]
    began = time.monotonic()
    async with Client(settings) as client:
        await link.start()
        try:
            await link.connection(timeout=settings.publish_timeout)
            for count, window in enumerate(_windows(wanted)):
                await asyncio.sleep(began + count * WINDOW / rate - time.monotonic())
                jids = [new_jid(replay, job.jid) for job in window]
                await orders.replay(replay, jids)
                failed = await client.send([message(replay, job, time.time()) for job in window])
                ledger.add([jid for index, jid in enumerate(jids) if index not in failed])
                for error in failed.values():
                    raise error
        finally:
            await orders.close()
            await link.stop()
    return len(wanted)


def _windows(jobs: Sequence[PastJob]) -> Iterator[Sequence[PastJob]]:
    return (jobs[at : at + WINDOW] for at in range(0, len(jobs), WINDOW))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: done, or shown; 1: it could not be done, and a line says why."""
    options = _parser().parse_args(argv)
    settings = load()
    try:
        jobs = past_jobs(lake_in(settings.lake_dir), options.of, options.since, options.until, options.where)
        replay = options.id or _id(options)
        _show(replay, jobs, len(ledger_of(settings.lake_dir, replay).done))
        if not options.yes:
            print("nothing is enqueued without --yes")
            return 0
        print(f"enqueued {asyncio.run(run(settings, replay, jobs, rate=options.rate))} jobs")
    except (BadCondition, HistoryMissing, NoLake, BrokerError) as error:
        print(f"amqpjobs: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="amqpjobs replay", description=__doc__)
    add_span(parser)
    parser.add_argument("--where", default="true", metavar="SQL", help="\"class = 'Mail' and error_class = 'Timeout'\"")
    parser.add_argument("--of", choices=list(TABLES), default="dead", help="which jobs (default: dead)")
    parser.add_argument("--rate", type=_rate, default=100.0, metavar="N", help="jobs a second, at most (default: 100)")
    parser.add_argument("--id", type=_name, metavar="NAME", help="the replay's id: to run the same choice once more")
    parser.add_argument("--yes", action="store_true", help="enqueue them")
    return parser


def _id(options: argparse.Namespace) -> str:
    choice = json.dumps([options.of, options.since, options.until, options.where])
    return hashlib.blake2b(choice.encode(), digest_size=6).hexdigest()


def _show(replay: str, jobs: Sequence[PastJob], done: int) -> None:
    print(f"replay {replay}: {len(jobs)} jobs, of which {done} are enqueued already")
    for (cls, queue), count in Counter((job.cls, job.queue) for job in jobs).most_common():
        print(f"  {count:>8}  {cls}  {queue}")
    for job in jobs[:SAMPLES]:
        print(f"  {written(job.at)}  {job.jid}  {job.job[:100]}")


def _name(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", word):
        raise ValueError(word)
    return word


def _rate(word: str) -> float:
    rate = float(word)
    if not 0 < rate < 1e9:
        raise ValueError(word)
    return rate


if __name__ == "__main__":
    sys.exit(main())
