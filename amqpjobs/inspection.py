"""`amqpjobs inspect`: what is in queues and streams now. It reads only, into views of its own that are thrown away."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.clock import SystemClock
from amqpjobs.model import names, reading, text
from amqpjobs.model.messages import Heartbeat
from amqpjobs.model.processes import GONE_AFTER, Process, Processes
from amqpjobs.sets import desk, followed, linked
from amqpjobs.settings import Settings, load
from amqpjobs.streams import inspect
from amqpjobs.streams.audit_store import Action
from amqpjobs.streams.controls_view import ControlsView
from amqpjobs.streams.errors import NotFound
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import FromTime, Incoming
from amqpjobs.streams.rows import Row
from amqpjobs.streams.views import DelayedView

SILENCE = 0.5
"""Seconds without a heartbeat after which all that the stream holds was read."""

SOME_JOBS = 5
"""Jobs that an action of the audit is shown with."""

_ORDER = {names.SCHEDULED: "due", names.RETRIES: "due", names.DEAD: "-at"}


class Found(NamedTuple):
    """How many there are in total, and the first of them."""

    total: int
    items: list[dict[str, Any]]


def run(options: argparse.Namespace) -> int:
    """Look, and print. Raises BrokerError."""
    found = asyncio.run(_LOOKS[options.what](load(), options.limit))
    if options.json:
        print(json.dumps(text.strict(found._asdict()), ensure_ascii=False))
        return 0
    for line in table(found.items):
        print(line)
    if found.total > len(found.items):
        print(f"({found.total} in all; --limit shows more)", file=sys.stderr)
    return 0


async def queues(settings: Settings, limit: int) -> Found:
    """The job queues that the broker tells of, those of workers, and those that are paused."""
    async with _linked(settings) as link:
        connection = await link.connection()
        paused = await _paused(link)
        known = {name for process in await _processes(link) for name in process.beat.queues}
        states = await inspect.queues(connection, settings, {*settings.queues, *known, *paused})
    items = [
        {"queue": name, "ready": states[name].ready, "consumers": states[name].consumers, "paused": name in paused}
        for name in sorted(states)
    ]
    items += [{"queue": name, "ready": 0, "consumers": 0, "paused": True} for name in sorted(paused - set(states))]
    return Found(len(items), items[:limit])


async def processes(settings: Settings, limit: int) -> Found:
    """The processes that beat in the last minute and said no goodbye."""
    async with _linked(settings) as link:
        present = await _processes(link)
        now = link.clock.wall()
    return Found(len(present), [_process(process.beat, now) for process in present[:limit]])


def delayed(stream: str) -> Callable[[Settings, int], Coroutine[Any, Any, Found]]:
    """What waits in a delayed stream."""

    async def look(settings: Settings, limit: int) -> Found:
        with tempfile.TemporaryDirectory(prefix="amqpjobs-") as folder:
            async with _linked(settings) as link:
                view = DelayedView(Path(folder), stream)
                try:
                    async with followed(link, view, stream) as follower:
                        count = await follower.query(view.count)
                        rows = await follower.query(lambda: view.page(limit, sort=_ORDER[stream]))
                finally:
                    view.close()
        return Found(count, [_row(row) for row in rows])

    return look


async def audit(settings: Settings, limit: int) -> Found:
    """What operators did, the newest first."""
    async with desk(settings, ()) as it:
        store, reader = it.record
        total, actions = await reader.query(lambda: (store.count(), store.page(limit)))
        jobs = [await reader.query(lambda a=each: store.jobs(a.action, SOME_JOBS)) for each in actions]  # type: ignore[misc]
    return Found(total, [_action(each, found) for each, found in zip(actions, jobs, strict=True)])


_LOOKS = {
    "audit": audit,
    "queues": queues,
    "scheduled": delayed(names.SCHEDULED),
    "retries": delayed(names.RETRIES),
    "dead": delayed(names.DEAD),
    "processes": processes,
}


def table(items: Sequence[dict[str, Any]]) -> list[str]:
    """The items as columns, with a line of headings; nothing for none."""
    if not items:
        return []
    columns = list(items[0])
    rows = [[column.replace("_", " ") for column in columns], *([_cell(item[c]) for c in columns] for item in items)]
    widths = [max(len(row[number]) for row in rows) for number in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _linked(settings: Settings) -> contextlib.AbstractAsyncContextManager[Link]:
    return linked(settings, "inspect", SystemClock())


async def _paused(link: Link) -> frozenset[str]:
    view = ControlsView()
    try:
        async with followed(link, view, names.CONTROLS):
            return view.log.controls.paused
    except NotFound:
        return frozenset()


async def _processes(link: Link) -> list[Process]:
    """A fold of the last minute's heartbeats. A stream does not tell when each arrived; their own times are shown."""
    connection = await link.connection()
    inbox: asyncio.Queue[Incoming] = asyncio.Queue()
    start = FromTime(link.clock.wall() - GONE_AFTER)
    consumer = await connection.read(names.HEARTBEATS, inbox.put_nowait, start=start, prefetch=1000)
    found = Processes()
    try:
        while True:
            async with asyncio.timeout(SILENCE):
                message = await inbox.get()
            for value in _values(message.body):
                beat = reading.read_heartbeat(value)
                if isinstance(beat, Heartbeat):
                    found.arrive(beat, 0.0)
            consumer.ack(message.tag)
    except TimeoutError:
        return found.present(0.0)
    finally:
        await consumer.close()


def _values(body: bytes) -> list[Any]:
    values = reading.values(body)
    return values if isinstance(values, list) else []


def _process(beat: Heartbeat, now: float) -> dict[str, Any]:
    return {
        "process": beat.identity,
        "nonce": beat.nonce or "",
        "state": beat.state,
        "busy": f"{beat.busy}/{beat.concurrency}",
        "queues": beat.queues,
        "started": _time(beat.boot_at),
        "last_beat": "" if beat.beat is None else f"{max(0.0, now - beat.beat):.0f} s ago",
        "version": beat.version,
    }


def _action(action: Action, jobs: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    return {
        "at": _time(action.at),
        "by": action.by,
        "via": action.via,
        "what": action.op,
        "in": action.place,
        "where": action.where,
        "jobs": action.jobs,
        "done": action.done,
        "not_found": action.not_found,
        "conflict": action.conflict,
        "which": [jid for jid, _ in jobs],
        "action": action.action,
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "due": _time(row.due),
        "at": _time(row.at),
        "jid": row.jid,
        "class": row.cls,
        "queue": row.queue,
        "retry_count": row.retry_count,
        "error_class": row.error_class,
        "error_message": row.error_message,
        "tags": row.tags,
        "entry": row.entry,
    }


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _cell(value: Any) -> str:
    """One line of printable text: a job's words must not steer the terminal that they are shown on."""
    words = ", ".join(value) if isinstance(value, list) else str(value)
    shown = "".join(each if each.isprintable() else " " for each in text.safe(words[:200]))
    return shown if len(words) <= 60 else shown[:59] + "…"
