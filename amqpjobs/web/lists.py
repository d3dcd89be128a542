"""The lists of jobs that wait, and what visitors do to them: forms that work without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.action import Action, Order
from amqpjobs.model import names
from amqpjobs.model.protocol import Target, Verdict
from amqpjobs.model.words import WORDS
from amqpjobs.settings import age_seconds
from amqpjobs.streams.audit_store import Action as Recorded
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.listing import Search
from amqpjobs.streams.marks import Where
from amqpjobs.web import items
from amqpjobs.web.auth import visitor
from amqpjobs.web.forms import back, form_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Offset
from amqpjobs.web.searching import Searched
from amqpjobs.web.views import Views

router = APIRouter(include_in_schema=False)

SEARCHED = ("q", "class", "queue", "tag", "sort", "after")
"""What a search is made of, in the address of a page and in its forms."""
ROWS = 50
"""Jobs on one page."""


class Kind(NamedTuple):
    """A delayed set as a page: its title, its stream, what its time is called, and what can be done to its jobs."""

    title: str
    stream: str
    when: str
    words: tuple[str, ...]
    sorts: tuple[tuple[str, str], ...]


_DUE = (("due", "next due"), ("-due", "last due"))
_FAILED = (("-failed_at", "latest failure"), ("failed_at", "oldest failure"))
_DIED = (("-at", "latest"), ("at", "oldest"))
_NAMED = (("class", "class"), ("queue", "queue"), ("jid", "jid"))

KINDS: Mapping[str, Kind] = {
    "scheduled-jobs": Kind("Scheduled", names.SCHEDULED, "Due", ("trigger", "delete"), (*_DUE, *_NAMED)),
    "retries": Kind("Retries", names.RETRIES, "Next try", ("retry", "kill", "delete"), (*_DUE, *_FAILED, *_NAMED)),
    "dead-jobs": Kind("Dead", names.DEAD, "Died", ("requeue", "delete"), (*_DIED, *_NAMED)),
}
LABELS = {
    "trigger": "Run now", "retry": "Retry now", "kill": "Kill", "requeue": "Run again", "delete": "Delete",
}  # fmt: skip


@router.get("/scheduled-jobs")
@router.get("/retries")
@router.get("/dead-jobs")
async def listing(request: Request, wanted: Searched, action: str = "") -> Response:
    """One page of a delayed set, or of what is searched for in it."""
    place = request.url.path.rpartition("/")[2]
    kind, views = KINDS[place], views_of(request)
    wanted = wanted._replace(limit=ROWS, sort=wanted.sort or kind.sorts[0][0])
    fault, status = "", 200
    try:
        found = await views.page(kind.stream, wanted)
    except ValueError as error:
        fault, status = str(error), 422
        found = await views.page(kind.stream, Search(limit=ROWS))
    given = _given(wanted)
    more: dict[str, object] = {
        "place": place, "kind": kind, "lines": [items.line(kind.stream, row) for row in found.rows], "found": found,
        "wanted": wanted, "given": given, "fault": fault, "late": views.late(), "told": await _told(request, action),
        "next": f"?{urlencode(given | {'after': found.after})}" if found.after else None,
    }  # fmt: skip
    more["classes"], more["queues"] = await views.names(kind.stream)
    limits = {"most": views.settings.dead_max, "age": age_seconds(views.settings.dead_max_age)}
    page = await page_of(request, "delayed.html", **more, labels=LABELS, limits=limits)
    page.status_code = status
    return page


@router.post("/scheduled-jobs")
@router.post("/retries")
@router.post("/dead-jobs")
async def act(request: Request) -> Response:
    """A button of such a page, for one job (`jid`, `entry`) or all; then back to the page, which says how it went."""
    place = request.url.path.rpartition("/")[2]
    form, views = await form_of(request), views_of(request)
    if form is None or form.get("action") not in KINDS[place].words or ("jid" in form) == ("all" in form):
        return problem(422, "Parameters out of bounds", "This is no form of that page.")
    order = Order(form["action"], KINDS[place].stream, visitor(request), "web")
    if "jid" in form:
        action = await views.desk.act(order, [Target(form["jid"], form.get("entry") or None)])
    elif (reason := views.late()) is not None:
        return problem(503, "Not ready", f"What all is, is not known: {reason}. Nothing was done.")
    else:
        action = await views.desk.act_on_all(order, Where())
    return back(request, place, action=action.id, **{name: form[name] for name in SEARCHED if name in form})


@router.get("/audit")
async def audit(request: Request, offset: Offset = 0, action: str = "") -> Response:
    """Who ordered what, the newest first."""
    count, actions = await views_of(request).audit(ROWS, offset)
    told = await _told(request, action)
    more = {"place": "audit", "actions": actions, "count": count, "offset": offset, "span": ROWS, "told": told}
    return await page_of(request, "audit.html", **more)


@router.post("/audit")
async def undo(request: Request) -> Response:
    """Undo a deletion."""
    form = await form_of(request)
    if form is None or not form.get("undo"):
        return problem(422, "Parameters out of bounds", "This is no form of that page.")
    try:
        actions = await views_of(request).desk.undo(form["undo"], by=visitor(request), via="web")
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    return back(request, "audit", action=actions[0].id if actions else "none")


def _given(wanted: Search) -> dict[str, str]:
    """The search as it stands in the address of a page, without the page's place in the list."""
    values = (wanted.q, wanted.cls, wanted.queue, wanted.tag, wanted.sort)
    return {name: value for name, value in zip(SEARCHED, values, strict=False) if value}


class Told(NamedTuple):
    """How an action went, in words; `undo` is its id where it can be undone."""

    text: str
    wrong: bool
    undo: str | None = None


async def _told(request: Request, action: str) -> Told | None:
    """What the page says of the action that led to it."""
    if not action:
        return None
    handle = views_of(request).desk.handle(action)
    if handle is not None:
        return _sentence(handle)
    recorded = await views_of(request).recorded(action)
    return None if recorded is None else _recorded(recorded)


def _sentence(action: Action) -> Told:
    if action.error is not None:
        return Told(f"The broker did not take all of it: {action.error}.", wrong=True)
    counts = [action.counts.get(verdict, 0) for verdict in (Verdict.DONE, Verdict.NOT_FOUND, Verdict.CONFLICT)]
    return _worded(action.order.word, *counts, unknown=action.unknown, action=action.id)


def _recorded(a: Recorded) -> Told:
    return _worded(a.op, a.done, a.not_found, a.conflict, unknown=a.unknown, action=a.action)


def _worded(word: str, done: int, not_found: int, conflict: int, *, unknown: int, action: str) -> Told:
    past = WORDS[word].past.capitalize() if word in WORDS else word
    parts = [f"{past} {done:,} {'job' if done == 1 else 'jobs'}."]
    if not_found:
        parts.append(f"{not_found:,} not found.")
    if conflict:
        parts.append(f"{conflict:,} could not be: the scheduler has claimed them, they are on their way.")
    if unknown:
        parts.append(f"Of {unknown:,} the outcome is not known yet.")
    return Told(" ".join(parts), bool(not_found or conflict), action if word == "delete" and done else None)


def views_of(request: Request) -> Views:
    """What this process knows."""
    views: Views = request.app.state.views
    return views
