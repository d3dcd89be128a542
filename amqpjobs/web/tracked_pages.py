"""Tracked jobs as pages: all of them by state, type and tag, and one with its progress and its log as they come."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.model import text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked_acts import of_jid
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.web.kue import NAMES, STATES, life, shown
from amqpjobs.web.pages import page_of
from amqpjobs.web.responses import Offset
from amqpjobs.web.tracked import door

router = APIRouter(include_in_schema=False)

ROWS = 50
"""Jobs on one page."""
MOST_TYPES = 500
"""Types to choose from."""
MOST_SHOWN, MOST_LINES = 16 * 1024, 200
"""Bytes of data and of output, and lines of the log, that a page shows."""


@router.get("/tracked-jobs")
async def listing(request: Request, state: str = "", type: str = "", tag: str = "", offset: Offset = 0) -> Response:
    """One page of them in priority order; a state that there is none of is no filter."""
    it, state, type, tag = door(request), state if state in STATES else "", text.safe(type), text.safe(tag)

    def look() -> tuple[dict[State, int], list[str], list[dict[str, Any]]]:
        store = it.view.store
        states = STATES[state] if state else list(NAMES)
        found = store.listed(states, type or None, ROWS + 1, offset, tag or None)
        return store.counts(), store.types()[:MOST_TYPES], [shown(job) for job in found]

    known, types, jobs = await it.query(look)
    given = {name: value for name, value in (("state", state), ("type", type), ("tag", tag)) if value}
    more: dict[str, object] = {
        "counts": {name: sum(known.get(each, 0) for each in states) for name, states in STATES.items()},
        "types": types, "jobs": jobs[:ROWS], "wanted": {"state": state, "type": type, "tag": tag}, "given": given,
        "there": f"{request.url.path.rpartition('/')[2]}?{urlencode(given | {'offset': offset})}",
        "earlier": _turned(given, max(0, offset - ROWS)) if offset else None,
        "later": _turned(given, offset + ROWS) if len(jobs) > ROWS else None, "trouble": it.trouble,
    }  # fmt: skip
    return await page_of(request, "tracked_jobs.html", place="tracked-jobs", told=None, **more)


async def for_page(it: TrackedDoor, jid: str) -> dict[str, Any] | None:
    """What the page of a job shows of a tracked one, named by its number or by its producer's jid: as `life`, with
    `data` and `output` as text that may be cut; None when there is none."""
    found = await life(it, int(jid)) if jid.isascii() and jid.isdigit() and len(jid) < 19 else None
    if found is None:
        verdict = await it.query(lambda: it.view.store.verdict(of_jid(jid)))
        found = None if verdict is None or verdict.job is None else await life(it, verdict.job)
    if found is None:
        return None
    pieces = {name: text.dump(found[name])[:MOST_SHOWN].decode("utf-8", "replace") for name in ("data", "output")}
    ended = found["ended_at"] is not None and found["state"] in ("complete", "failed", "cancelled")
    return found | pieces | {"ended": ended, "log": found["log"][-MOST_LINES:], "lines": len(found["log"])}


def _turned(given: dict[str, str], offset: int) -> str:
    return "?" + urlencode(given | {"offset": str(offset)})
