"""How full the job queues are: their names from the management API where there is one, their depths from the broker.

The API's figures are sampled and lag by seconds; a passive declare is exact. So the API is asked for what only it
knows, which queues there are, and for depths only where the queues are too many to ask for one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import management
from amqpjobs.streams.management import NoApi
from amqpjobs.streams.port import Connection, QueueState

log = logging.getLogger("amqpjobs.streams")

_IN, _OUT = "publish_details", "ack_details"
_COLUMNS = f"name,messages_ready,consumers,arguments,message_stats.{_IN}.rate,message_stats.{_OUT}.rate"
_WHOLE_COLUMNS = "name,messages_ready,consumers,arguments,message_stats"
"""For LavinMQ, which gives nothing for the name of a part of a column."""
MOST_ASKED = 100
"""Queues asked for one by one; beyond that, the API's figures have to do."""


async def queues(connection: Connection, settings: Settings, known: Collection[str]) -> dict[str, QueueState]:
    """The state of each job queue that exists, by its name without `queue.`: those that the API lists, and `known`.

    Raises ConnectionLost. Without the management API only `known` can be asked for.
    """
    listed = await _listed(settings, _WHOLE_COLUMNS if connection.server.get("product") == "LavinMQ" else _COLUMNS)
    wanted = sorted({*known, *listed}, key=lambda name: (name not in known, name))
    states: dict[str, QueueState] = {}
    for name in wanted[:MOST_ASKED]:
        state = await connection.passive(names.broker_queue(name)) if names.is_queue_name(name) else None
        if state is not None:
            states[name] = replace(listed.get(name, state), ready=state.ready, consumers=state.consumers)
    states.update((name, listed[name]) for name in wanted[MOST_ASKED:] if name in listed)
    return states


async def _listed(settings: Settings, columns: str) -> dict[str, QueueState]:
    """What the API lists, nothing when it does not answer as it should."""
    try:
        async with management.api(settings) as api:
            found = await api.get("queues/{vhost}", columns=columns)
    except NoApi as error:
        log.debug("the management API does not answer: %s", error)
        return {}
    return dict(_state(each) for each in found if _is_job_queue(each)) if isinstance(found, list) else {}


async def alarm(settings: Settings) -> str | None:
    """Which alarm makes the broker take no publishes, as the management API tells; None where it has none, or no API.

    A connection is told by the broker itself, but only once it has published in vain.
    """
    try:
        async with management.api(settings) as api:
            found = await api.get("nodes", columns="name,mem_alarm,disk_free_alarm")
    except NoApi as error:
        log.debug("the management API does not answer: %s", error)
        return None
    nodes = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    raised = [
        f"{what} on {each.get('name')}"
        for each in nodes
        for what, field in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if each.get(field) is True
    ]
    return f"alarm: {', '.join(raised)}" if raised else None


def _is_job_queue(each: Any) -> bool:
    name = each.get("name") if isinstance(each, dict) else None
    return isinstance(name, str) and name.startswith(names.QUEUE_PREFIX) and names.is_queue_name(_logical(name))


def _state(each: dict[str, Any]) -> tuple[str, QueueState]:
    ready, consumers = int(each.get("messages_ready") or 0), int(each.get("consumers") or 0)
    arguments = each.get("arguments")
    return _logical(each["name"]), QueueState(
        ready, consumers, _rate(each, _IN), _rate(each, _OUT), arguments if isinstance(arguments, dict) else None
    )


def _rate(each: dict[str, Any], name: str) -> float | None:
    """A sampled rate; a queue that nothing ever came to, or went from, has none: 0."""
    stats = each.get("message_stats", {})
    details = stats.get(name, {}) if isinstance(stats, dict) else None
    found = details.get("rate", 0.0) if isinstance(details, dict) else None
    return float(found) if isinstance(found, int | float) else None


def _logical(broker_name: str) -> str:
    return broker_name.removeprefix(names.QUEUE_PREFIX)
