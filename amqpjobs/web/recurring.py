"""Recurring jobs: the page with its buttons, and the list for programs."""

from __future__ import annotations

from fastapi import APIRouter, Request
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
    try:
        done = await views_of(request).order_recurring(op, form["name"], by=visitor(request))
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    if not done:
        return problem(404, "Not found", "No recurring job has that name.")
    return back(request, "recurring", did=op, name=form["name"])
