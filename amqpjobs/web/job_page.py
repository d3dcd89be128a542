"""One job by its jid: its life as a page and as JSON, and the whole of its bytes."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from amqpjobs.model import names, text
from amqpjobs.web import biography, items, kue
from amqpjobs.web.acting import SETS
from amqpjobs.web.biography import Copy, Event
from amqpjobs.web.lists import LABELS, views_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.queue_pages import Running, running
from amqpjobs.web.responses import json_response
from amqpjobs.web.tracked import answer, door
from amqpjobs.web.tracked_pages import for_page
from amqpjobs.web.views import Views

router = APIRouter()

MOST = 100
"""Entries, runs and orders of one job that are looked at."""
WORDS = {
    "scheduled-jobs": ("trigger", "delete"),
    "retries": ("retry", "kill", "delete"),
    "dead-jobs": ("requeue", "delete"),
}


class Life(NamedTuple):
    """What is known of one job."""

    copies: list[Copy]
    running: list[Running]
    events: list[Event]
    entries: list[dict[str, Any]]
    runs: list[dict[str, Any]]


@router.get("/api/jobs/{jid:path}", tags=["jobs"])
async def one(request: Request, jid: str, after: Annotated[int, Query(ge=0, le=2**31)] = 0) -> Response:
    """All that is known of one job: where it waits, where it runs, its runs, and what happened in order of time. Of a
    tracked one, by its number: what it is, with its log from line `after` on."""
    tracked = await kue.numbered(door(request), jid, after)
    if tracked is not None:
        return answer(tracked)
    life = await _life(views_of(request), text.safe(jid))
    if not life.events and not life.running:
        return problem(
            404, "Not found", "Nothing is known of a job with that jid: it never was, or it waits in a queue."
        )
    return json_response(
        {
            "jid": jid,
            "waiting": life.entries,
            "running": [each._asdict() for each in life.running],
            "runs": life.runs,
            "events": [event._asdict() for event in life.events],
        }
    )


@router.get("/jobs/{jid:path}", include_in_schema=False)
async def page(request: Request, jid: str, raw: str = "", entry: str = "") -> Response:
    """The page, or with `raw` (a set) and `entry` the whole of one entry as it came."""
    views, jid = views_of(request), text.safe(jid)
    if raw in SETS:
        return await _whole(views, SETS[raw], entry)
    life = await _life(views, jid)
    more = {"place": "", "jid": jid, "life": life, "labels": LABELS, "words": WORDS, "told": None}
    return await page_of(request, "job.html", tracked=await for_page(door(request), jid), **more)


async def _whole(views: Views, stream: str, entry: str) -> Response:
    """Bytes as they came: as text, whatever is in them, so that no browser takes them for anything else."""
    each = views.delayed[stream]
    found = await each.follower.query(lambda: each.view.body(text.safe(entry)))
    if found is None:
        return problem(404, "Not found", "That entry does not wait any more.")
    return Response(found, media_type="text/plain; charset=utf-8")


async def _life(views: Views, jid: str) -> Life:
    copies, entries = [], []
    for stream in names.DELAYED:
        each = views.delayed[stream]
        for row in await each.follower.query(lambda each=each: each.view.of_jid(jid, MOST)):  # type: ignore[misc]
            copies.append(biography.copy_of(stream, row))
            entries.append({**items.item(stream, row), "in": stream})
    runs = await views.metrics.query(lambda: views.tally.outcomes(jid, MOST))
    touches = await views.record.follower.query(lambda: views.record.store.touching(jid, MOST))
    return Life(
        copies,
        [each for each in running(views) if each.jid == jid],
        biography.events(copies, runs, touches),
        entries,
        [run._asdict() for run in runs],
    )
