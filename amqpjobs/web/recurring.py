"""Recurring jobs: the page with its buttons, and the list for programs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from amqpjobs.orders import RecurringOp
from amqpjobs.streams.errors import BrokerError
from amqpjobs.web.auth import visitor
from amqpjobs.web.forms import back, form_of
from amqpjobs.web.lists import Told, views_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import json_response

router = APIRouter()

Name = Annotated[str, Path(description="Its name; `.` and `..`, which no address can have, as `~.` and `~..`.")]
DONE: dict[RecurringOp, str] = {
    "pause": "{} is paused: no tick happens until it is resumed.",
    "resume": "{} is resumed: its ticks happen from now on.",
    "run": "The job of {} was sent to its queue once, beside its ticks.",
}
"""What can be ordered here, and what is said of it when it is done."""


@router.get("/api/recurring", tags=["queues"])
async def recurring(request: Request) -> Response:
    """All recurring jobs by name with their last and next tick, and the declarations that were refused lately."""
    lines, refused = await views_of(request).recurring()
    listed = {"recurring": [each._asdict() for each in lines], "refused": [each._asdict() for each in refused]}
    return json_response(listed, headers={"X-Total-Count": str(len(lines))})


@router.post("/api/recurring/{name}/pause", status_code=204, tags=["queues"])
async def pause(request: Request, name: Name) -> Response:
    """No tick of this job happens until it is resumed."""
    return await _ordered(request, "pause", name.removeprefix("~"), "api") or Response(status_code=204)


@router.post("/api/recurring/{name}/resume", status_code=204, tags=["queues"])
async def resume(request: Request, name: Name) -> Response:
    """Its ticks happen from now on."""
    return await _ordered(request, "resume", name.removeprefix("~"), "api") or Response(status_code=204)


@router.post("/api/recurring/{name}/run", status_code=204, tags=["queues"])
async def run(request: Request, name: Name) -> Response:
    """Send the job to its queue once, beside its ticks, even while it is paused."""
    return await _ordered(request, "run", name.removeprefix("~"), "api") or Response(status_code=204)


@router.get("/recurring", include_in_schema=False)
async def listing(request: Request, did: str = "", name: str = "") -> Response:
    """The page; `did` and `name` say which order led to it."""
    lines, refused = await views_of(request).recurring()
    told = None
    if did in DONE and any(each.name == name for each in lines):
        told = Told(DONE[did].format(name), wrong=False)
    count = len(lines)
    more = {"lines": lines, "refused": refused, "count": count, "span": count, "offset": 0, "told": told}
    return await page_of(request, "recurring.html", place="recurring", **more)


@router.post("/recurring", include_in_schema=False)
async def order(request: Request) -> Response:
    """A button; then back to the page, which says how it went."""
    form = await form_of(request)
    op = next((each for each in DONE if form is not None and form.get("op") == each), None)
    if form is None or op is None or not form.get("name"):
        return problem(422, "Parameters out of bounds", "This is no form of that page.")
    refused = await _ordered(request, op, form["name"], "web")
    return refused or back(request, "recurring", did=op, name=form["name"])


async def _ordered(request: Request, op: RecurringOp, name: str, via: str) -> Response | None:
    """Give the order and wait until it shows; why not, or None."""
    try:
        done = await views_of(request).order_recurring(op, name, by=visitor(request), via=via)
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    return None if done else problem(404, "Not found", "No recurring job has that name.")
