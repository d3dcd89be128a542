"""The lists of jobs that wait, and what visitors do to them: forms that work without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.action import Action, Order
from amqpjobs.model import names, text
from amqpjobs.model.protocol import Target, Verdict
from amqpjobs.model.words import WORDS
from amqpjobs.settings import age_seconds
from amqpjobs.streams.audit_store import Action as Recorded
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.listing import Search
from amqpjobs.web import choosing, items
from amqpjobs.web.auth import visitor
from amqpjobs.web.forms import back, fields_of, form_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Offset
from amqpjobs.web.searching import FIELDS, Searched, filters, read, written
from amqpjobs.web.views import Views

router = APIRouter(include_in_schema=False)

BACK = (*FIELDS, "after")
"""What of a form leads back to where it stood."""
ROWS = 50
"""Jobs on one page."""
MOST_MINUTES = 60 * 24 * 3650
MOST_ERRORS = 8
"""Error classes that a list is grouped by at its head."""


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
    given = written(wanted)
    more: dict[str, object] = {
        "place": place, "kind": kind, "lines": [items.line(kind.stream, row) for row in found.rows], "found": found,
        "wanted": wanted, "given": given, "filtered": filters(wanted), "fault": fault, "late": views.late(kind.stream),
        "told": await _told(request, action), "errors": await views.errors(kind.stream, MOST_ERRORS),
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
    """A button of such a page, for one job, those that were ticked, or all that match; then back to where it stood."""
    place = request.url.path.rpartition("/")[2]
    fields, views = await fields_of(request), views_of(request)
    form = dict(fields or ())
    try:
        order = _order(request, place, form)
        chosen = _chosen(fields or [], form)
    except ValueError as error:
        return problem(422, "Parameters out of bounds", f"This is no form of that page: {error}.")
    action = await choosing.act(views, order, chosen)
    if isinstance(action, Response):
        return action
    return back(request, place, action=action.id, **{name: form[name] for name in BACK if name in form})


def _order(request: Request, place: str, form: Mapping[str, str]) -> Order:
    """What the form orders. Raises ValueError."""
    kind, word, due = KINDS[place], form.get("action", ""), None
    if word not in (*kind.words, *(("reschedule",) if place != "dead-jobs" else ())):
        raise ValueError("there is no such button")
    if word == "reschedule":
        minutes = float(form.get("minutes", ""))
        if not 0 <= minutes <= MOST_MINUTES:
            raise ValueError(f"0 to {MOST_MINUTES:,} minutes")
        due = request.app.state.clock.wall() + 60 * minutes
    return Order(word, kind.stream, visitor(request), "web", due)


def _chosen(fields: Sequence[tuple[str, str]], form: Mapping[str, str]) -> Sequence[Target] | Search:
    """Which jobs are meant: one, those that were ticked, or all that match. Raises ValueError."""
    if sum(name in form for name in ("all", "jid", "job")) != 1:
        raise ValueError("no job was chosen")
    if "all" in form:
        return read(form)
    if "jid" in form:
        return [Target(form["jid"], form.get("entry") or None)]
    picked = [text.parse(value.encode()) for name, value in fields if name == "job"]
    if not all(isinstance(p, list) and [type(each) for each in p] == [str, str] for p in picked):
        raise ValueError("no job was chosen")
    return [Target(jid, entry) for entry, jid in picked]


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
