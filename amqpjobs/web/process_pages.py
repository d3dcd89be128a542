"""Worker processes: who they are, what they run now, and orders to them."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.streams.errors import BrokerError
from amqpjobs.web.auth import visitor
from amqpjobs.web.forms import back, form_of
from amqpjobs.web.lists import Told, views_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem

router = APIRouter()

MOST_RUNNING = 200
"""Running jobs shown of one process."""
SAID = {
    "quiet": "{} was asked to take no more jobs; it says so itself once it has heard.",
    "stop": "{} was asked to stop: it finishes what it runs, within its timeout.",
}


@router.post("/api/processes/{process:path}/quiet", status_code=204, tags=["processes"])
async def quiet(request: Request, process: str) -> Response:
    """A process (its nonce, or `hostname:pid:tag`) takes no more jobs, and finishes what it runs."""
    return await _ordered(request, process, "quiet", "api") or Response(status_code=204)


@router.post("/api/processes/{process:path}/stop", status_code=204, tags=["processes"])
async def stop(request: Request, process: str) -> Response:
    """A process (its nonce, or `hostname:pid:tag`) stops as by TERM."""
    return await _ordered(request, process, "stop", "api") or Response(status_code=204)


@router.get("/worker-processes", include_in_schema=False)
async def page(request: Request, did: str = "", name: str = "") -> Response:
    """The page; `did` and `name` say which order led to it."""
    views = views_of(request)
    known = any(name in (each.beat.nonce, each.beat.identity) for each in views.beats.present())
    told = Told(SAID[did].format(name), wrong=False) if did in SAID and known else None
    more = {"place": "worker-processes", "told": told, "most": MOST_RUNNING}
    return await page_of(request, "worker_processes.html", **more)


@router.post("/worker-processes", include_in_schema=False)
async def order(request: Request) -> Response:
    """A button."""
    form = await form_of(request)
    match (form or {}).get("op"):
        case "quiet" | "stop" as op if form is not None and form.get("process"):
            refused = await _ordered(request, form["process"], op, "web")
            return refused or back(request, "worker-processes", did=op, name=form["process"])
        case _:
            return problem(422, "Parameters out of bounds", "This is no form of that page.")


async def _ordered(request: Request, process: str, op: Literal["quiet", "stop"], via: str) -> Response | None:
    """Give the order; why not, or None. Everybody (`*`) is the shell's to order."""
    views = views_of(request)
    if not any(process in (each.beat.nonce, each.beat.identity) for each in views.beats.present()):
        return problem(404, "Not found", f"No process {process[:200]!r} has sent a heartbeat in the last minute.")
    try:
        async with views.desk.orders(visitor(request), via) as orders:
            await (orders.quiet if op == "quiet" else orders.stop)(process)
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    return None
