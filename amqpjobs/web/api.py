"""The JSON interface: the specification's routes. Strict JSON always: NaN as text, integers of any size exact."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.model import names
from amqpjobs.streams.listing import Search
from amqpjobs.web import items
from amqpjobs.web.live import Pulse
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import json_response, told
from amqpjobs.web.searching import Searched
from amqpjobs.web.status import Status
from amqpjobs.web.views import Views

router = APIRouter()


@router.get("/api/job-queues", tags=["queues"])
async def job_queues(request: Request) -> Response:
    """Counts of today (UTC) and now, and the queues by name."""
    snapshot = await _pulse(request).look()
    return await told(lambda: overview(snapshot))


@router.get("/api/scheduled-jobs", tags=["waiting"])
async def scheduled_jobs(request: Request, wanted: Searched) -> Response:
    """Jobs that wait for their time, the next due first; the header X-Total-Count tells how many there are."""
    return await _listed(request, names.SCHEDULED, wanted)


@router.get("/api/retries", tags=["waiting"])
async def retries(request: Request, wanted: Searched) -> Response:
    """Jobs that failed and will run again, the next due first; X-Total-Count tells how many there are."""
    return await _listed(request, names.RETRIES, wanted)


@router.get("/api/dead-jobs", tags=["waiting"])
async def dead_jobs(request: Request, wanted: Searched) -> Response:
    """Jobs that failed for good, the latest first; X-Total-Count tells how many there are."""
    return await _listed(request, names.DEAD, wanted)


@router.get("/api/processes", tags=["processes"])
async def processes(request: Request) -> Response:
    """The worker processes whose heartbeats arrive."""
    snapshot = await _pulse(request).look()
    facts = snapshot.facts
    return await told(
        lambda: [
            {
                **process.beat.model_dump(by_alias=True),
                "last_seen": facts.at - process.silent_for(facts.listened),
                "fresh": process.state(facts.listened) == "fresh",
            }
            for process in facts.processes
        ]
    )


@router.get("/health/live", tags=["health"])
async def live() -> Response:
    """Whether this process answers."""
    return json_response({"status": "ok"})


@router.get("/health/ready", tags=["health"])
async def ready(request: Request) -> Response:
    """Whether its figures can be relied on: 503 while the broker is away or a view lags."""
    reason = _views(request).late()
    return json_response({"status": "ok"}) if reason is None else problem(503, "Not ready", reason)


def overview(snapshot: Status) -> dict[str, Any]:
    """The specification's keys. A count that is not known yet is null."""
    facts = snapshot.facts
    return {
        "processed_today": facts.runs.today if facts.runs else None,
        "failed_today": facts.runs.failed_today if facts.runs else None,
        "processed_total": facts.runs.total if facts.runs else None,
        "failed_total": facts.runs.failed_total if facts.runs else None,
        "counted_since": facts.runs.since if facts.runs else None,
        "queues": {
            queue.name: {
                "ready": queue.ready,
                "consumers": queue.consumers,
                "rate_in": queue.rate_in,
                "rate_out": queue.rate_out,
                "processes": queue.processes,
                "ran_last_hour": queue.ran,
                "failed_last_hour": queue.failed,
                "latest_wait_ms": None if queue.latest_wait is None else queue.latest_wait * 1000,
            }
            for queue in facts.queues
        },
        "scheduled_count": facts.scheduled.count if facts.scheduled else None,
        "retry_count": facts.retries.count if facts.retries else None,
        "dead_count": facts.dead.count if facts.dead else None,
        "dead_dropped": facts.dead.dropped if facts.dead else None,
        "active_processes": len(snapshot.processes),
        "busy_workers": snapshot.busy,
        "broker": {"address": facts.broker.address, "connected": facts.broker.up, "blocked": facts.broker.blocked},
        "problems": [
            {"level": finding.level, "what": finding.what, "advice": f"{finding.advice} {finding.command}".strip()}
            for finding in snapshot.problems
        ],
    }


async def _listed(request: Request, stream: str, wanted: Search) -> Response:
    """The rows; how many match is in X-Total-Count, and the next page's `after` in X-Next-After.

    X-Total-At-Least says that more than that many match; X-Indexed-Up-To, that newer entries than that offset cannot be
    found by text or tag yet.
    """
    try:
        page = await _views(request).page(stream, wanted)
    except ValueError as error:
        if str(error).startswith("after:"):  # well formed, perhaps, but there is no such page
            return problem(404, "Not found", str(error))
        return problem(422, "Parameters out of bounds", str(error))
    headers = {
        "X-Total-Count": str(page.matching),
        "X-Total-At-Least": None if page.exact else "true",
        "X-Next-After": page.after,
        "X-Indexed-Up-To": None if page.indexed is None else str(page.indexed),
    }
    known = {name: value for name, value in headers.items() if value is not None}
    return await told(lambda: [items.item(stream, row) for row in page.rows], headers=known)


def _pulse(request: Request) -> Pulse:
    pulse: Pulse = request.app.state.pulse
    return pulse


def _views(request: Request) -> Views:
    views: Views = request.app.state.views
    return views
