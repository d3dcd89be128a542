"""Recurring jobs from the shell: `amqpjobs recurring list|pause|resume|run|remove`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from amqpjobs.clock import SystemClock
from amqpjobs.inspection import table
from amqpjobs.model import names, text
from amqpjobs.model.recurring import Recurring, Refused
from amqpjobs.orders import Orders
from amqpjobs.schedules import Line, lines
from amqpjobs.sets import followed, linked
from amqpjobs.settings import Settings, load
from amqpjobs.streams.controls_view import ControlsView
from amqpjobs.streams.link import Link
from amqpjobs.streams.views import DelayedView


def run(options: argparse.Namespace, *, by: str) -> int:
    """List, or give the order. Raises BrokerError, ValueError for a name that is none's."""
    return asyncio.run(_list(load(), options) if options.verb == "list" else _order(load(), options, by))


async def _order(settings: Settings, options: argparse.Namespace, by: str) -> int:
    async with linked(settings, f"recurring {options.verb} from the shell", SystemClock()) as link:
        known, _ = await _known(link)
        if options.name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "there is none"
            raise ValueError(f"no recurring job is called {options.name!r}; {there}")
        orders = Orders(link, by=by, via="cli", clock=link.clock)
        try:
            jid = await orders.recurring(options.verb, known[options.name].schedule)
        finally:
            await orders.close()
    print(jid or f"{options.verb.removesuffix('e')}ed {options.name}")
    return 0


async def _list(settings: Settings, options: argparse.Namespace) -> int:
    async with linked(settings, "recurring list from the shell", SystemClock()) as link:
        known, refused = await _known(link)
        found = lines(known, await _ticks(link), link.clock.wall())
    if options.json:
        whole = {"recurring": [line._asdict() for line in found], "refused": [each._asdict() for each in refused]}
        print(json.dumps(text.strict(whole), ensure_ascii=False))
        return 0
    for row in table([_row(line) for line in found]):
        print(row)
    for each in refused:
        print(f"refused: {each.name}: {each.reason}", file=sys.stderr)
    return 0


async def _known(link: Link) -> tuple[Mapping[str, Recurring], list[Refused]]:
    """What is in force, and what was refused lately."""
    view = ControlsView()
    async with followed(link, view, names.CONTROLS):
        return view.log.controls.recurring, list(view.log.refused)


async def _ticks(link: Link) -> dict[str, int]:
    """The last tick of each, from a view that only this command has."""
    with tempfile.TemporaryDirectory(prefix="amqpjobs-") as folder:
        view = DelayedView(Path(folder), names.SCHEDULED)
        try:
            async with followed(link, view, names.SCHEDULED) as follower:
                return await follower.query(view.store.ticks)
        finally:
            view.close()


def _row(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "class": line.cls,
        "times": line.times,
        "timezone": line.timezone,
        "last": _time(line.last),
        "next": "paused" if line.paused else line.problem or _time(line.next),
        "missed": line.missed,
        "origin": line.origin or "AMQP",
    }


def _time(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
