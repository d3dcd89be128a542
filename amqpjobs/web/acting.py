"""The JSON interface's actions on jobs that wait. One job: 204 done, 404 not found, 409 conflict (the scheduler has
claimed it), 202 not known yet. Many: 200 with a verdict for each, or 202 while some are not known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from starlette.responses import Response

from amqpjobs.action import Action, Order
from amqpjobs.model import fields, names
from amqpjobs.model.protocol import Target, Verdict
from amqpjobs.model.words import WORDS
from amqpjobs.streams.audit_store import Action as Recorded
from amqpjobs.streams.errors import ConfirmTimeout
from amqpjobs.streams.listing import Search
from amqpjobs.web import choosing, schemas
from amqpjobs.web.auth import visitor
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Limit, Offset, json_response
from amqpjobs.web.searching import read
from amqpjobs.web.views import Views

router = APIRouter(tags=["waiting"])

SETS = {"scheduled-jobs": names.SCHEDULED, "retries": names.RETRIES, "dead-jobs": names.DEAD}
"""The delayed sets as addresses name them."""
MOST_JOBS = 10_000

Entry = Annotated[str | None, Query(max_length=200, description="Of a jid that waits several times, this one.")]
When = Annotated[str | float | None, WithJsonSchema(schemas.TIME_OR_NULL)]


class Job(BaseModel):
    """One job: its jid, and its entry where the jid waits several times."""

    jid: str = Field(min_length=1)
    entry: str | None = Field(default=None, min_length=1)


def _kinds(schema: schemas.Schema) -> None:
    """Jobs that are named, or a search; with a time where they are to move there."""
    words = schema["properties"]["action"].get("enum", list(WORDS))
    texts: schemas.Schema = {key: {"maxLength": 0} for key in ("search", "q", "class", "queue", "tag", "error")}
    times = dict.fromkeys(("since", "until"), schemas.ABSENT)
    named = {"jobs": {"minItems": 1}, "all": {"const": False}, **texts, **times}
    found = {"jobs": {"maxItems": 0}, "all": {"const": True}}
    schema["anyOf"] = [
        {"required": needed, "properties": {**whom, "action": {"enum": which}, **more}}
        for whom, key, never in ((named, "jobs", ""), (found, "all", "restore"))
        for which, needed, more in (
            ([word for word in words if word not in ("reschedule", never)], [key], {}),
            ([word for word in words if word == "reschedule"], [key, "at"], {"at": schemas.TIME}),
        )
        if which
    ]


class Bulk(BaseModel):
    """Many jobs, named one by one or all that match, as in lists (`q` is `search`); `at` is where `reschedule` moves
    them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_kinds)

    action: str
    jobs: list[Job] = Field(default_factory=list, max_length=MOST_JOBS)
    all: bool = False
    search: str = Field(default="", max_length=1000)
    q: str = Field(default="", max_length=1000)
    cls: str = Field(default="", alias="class", max_length=500)
    queue: str = Field(default="", max_length=500)
    tag: str = Field(default="", max_length=500)
    error: str = Field(default="", max_length=500)
    since: When = None
    until: When = None
    at: When = None

    @model_validator(mode="after")
    def _either(self) -> Bulk:
        if bool(self.jobs) == self.all:
            raise ValueError('either "jobs" or "all": true')
        if not self.all and any(
            (self.search, self.q, self.cls, self.queue, self.tag, self.error, self.since, self.until)
        ):
            raise ValueError('what is searched for ("class", "queue", "error"…) chooses among "all"')
        return self

    def chosen(self) -> list[Target] | Search:
        """The jobs that are named, or the search that finds them. Raises ValueError."""
        if not self.all:
            return [Target(job.jid, job.entry) for job in self.jobs]
        times = {"since": self.since, "until": self.until}
        written = {name: "" if value is None else str(value) for name, value in times.items()}
        words = {
            "search": self.search or self.q,
            "class": self.cls,
            "queue": self.queue,
            "tag": self.tag,
            "error": self.error,
        }
        return read(words | written)


class BulkScheduled(Bulk):
    """Of scheduled jobs."""

    action: Literal["delete", "trigger", "reschedule", "restore"]


class BulkRetries(Bulk):
    """Of retries."""

    action: Literal["delete", "retry", "kill", "reschedule", "restore"]


class BulkDead(Bulk):
    """Of dead jobs."""

    action: Literal["delete", "requeue", "restore"]


BULKS = {"scheduled-jobs": BulkScheduled, "retries": BulkRetries, "dead-jobs": BulkDead}


class Moment(BaseModel):
    """The time that a job is to run at."""

    model_config = ConfigDict(extra="forbid")

    at: Annotated[str | float, WithJsonSchema(schemas.TIME)]


class Door(NamedTuple):
    """One action on one job: where it is asked for, what it is, and what the page of the interface says of it."""

    method: str
    place: str
    suffix: str
    word: str
    about: str


DOORS = (
    Door("DELETE", "scheduled-jobs", "", "delete", "Take a scheduled job out: it never runs."),
    Door("DELETE", "retries", "", "delete", "Take a failed job out: it never runs again."),
    Door("DELETE", "dead-jobs", "", "delete", "Take a dead job out."),
    Door("POST", "scheduled-jobs", "/trigger", "trigger", "Run a scheduled job now."),
    Door("POST", "retries", "/retry", "retry", "Run the next try of a failed job now."),
    Door("POST", "retries", "/kill", "kill", "Try a failed job no more: it joins the dead."),
    Door("POST", "dead-jobs", "/retry", "requeue", "Run a dead job again, from its first try."),
    *(
        Door("POST", place, "/restore", "restore", "Undo the last deletion of a job, while its stream still holds it.")
        for place in SETS
    ),
)


MOVES = ("scheduled-jobs", "retries")
"""Where jobs have a time to run at."""


def _open(method: str, path: str, act: Callable[..., Awaitable[Response]], about: str, status: int = 204) -> None:
    name = path.removeprefix("/api/").replace("/{jid:path}", "").replace("/", "_")
    router.add_api_route(
        path, act, methods=[method], status_code=status, name=f"{name}_{method}", summary=about, description=about
    )


def _open_door(door: Door) -> None:
    async def act(request: Request, jid: str, entry: Entry = None) -> Response:
        return await _one(request, door.word, door.place, Target(jid, entry or None))

    _open(door.method, f"/api/{door.place}/{{jid:path}}{door.suffix}", act, door.about)


def _open_moves(place: str) -> None:
    async def reschedule(request: Request, jid: str, moment: Moment, entry: Entry = None) -> Response:
        return await _one(request, "reschedule", place, Target(jid, entry or None), moment.at)

    _open("POST", f"/api/{place}/{{jid:path}}/reschedule", reschedule, "Let a job that waits run at another time.")


def _open_bulk(place: str, kind: type[Bulk]) -> None:
    async def bulk(request: Request, wanted: Bulk) -> Response:
        return await _many(request, place, wanted)

    bulk.__annotations__["wanted"] = Annotated[kind, Body()]
    words = ", ".join(f"`{word}`" for word, meaning in WORDS.items() if SETS[place] in meaning.streams)
    _open("POST", f"/api/{place}/actions", bulk, f"Act on many jobs, or on all that match: {words}.", 200)


for each in DOORS:
    _open_door(each)
for name in MOVES:
    _open_moves(name)
for name, kind in BULKS.items():
    _open_bulk(name, kind)


@router.post("/api/actions/{action}/undo")
async def undo(request: Request, action: str) -> Response:
    """Restore all that an action deleted."""
    by, via = visitor(request), "api"
    actions = await _views(request).desk.undo(action, by=by, via=via)
    return told(actions[0]) if actions else problem(404, "Not found", "No deletion by that action is on record.")


@router.get("/api/actions/{action}")
async def one_action(request: Request, action: str) -> Response:
    """An action: how many jobs are done, not found, in conflict, and not known (yet)."""
    handle = _views(request).desk.handle(action)
    if handle is not None:
        return told(handle, known=200)
    recorded = await _views(request).recorded(action)
    return problem(404, "Not found") if recorded is None else json_response(line(recorded))


@router.get("/api/audit", tags=["record"])
async def audit(request: Request, limit: Limit = 100, offset: Offset = 0) -> Response:
    """Who ordered what, the newest first; X-Total-Count tells how many there are."""
    count, found = await _views(request).audit(limit, offset)
    return json_response([line(each) for each in found], headers={"X-Total-Count": str(count)})


def told(action: Action, *, known: int | None = None) -> Response:
    """How an action stands."""
    if (refusal := _failed(action)) is not None:
        return refusal
    open_ = bool(action.unknown) or not action.finished
    body = {
        "action": action.id,
        "op": action.order.word,
        "in": action.order.stream,
        "finished": action.finished,
        "asked": action.asked,
        **{verdict.value: action.counts.get(verdict, 0) for verdict in Verdict},
        "unknown": action.unknown,
        "jobs": [
            {"jid": r.jid, "entry": r.entry, "verdict": r.verdict or "unknown", **({"why": r.why} if r.why else {})}
            for r in action.told
        ],
    }
    status = known or (202 if open_ else 200)
    return json_response(body, status)


def line(action: Recorded) -> dict[str, Any]:
    """An action of the audit."""
    found = action._asdict()
    return {("in" if name == "place" else name): value for name, value in found.items()} | {"unknown": action.unknown}


def _failed(action: Action) -> Response | None:
    """A broker that took nothing; one whose confirm was lost may have taken it."""
    if action.error is None or isinstance(action.error, ConfirmTimeout) or action.counts:
        return None
    return problem(503, "Not done", str(action.error), action=action.id)


async def _many(request: Request, place: str, wanted: Bulk) -> Response:
    order = _order(request, wanted.action, place, wanted.at)
    if isinstance(order, Response):
        return order
    try:
        chosen = wanted.chosen()
    except ValueError as error:
        return problem(422, "Parameters out of bounds", str(error))
    action = await choosing.act(_views(request), order, chosen)
    return action if isinstance(action, Response) else await asyncio.to_thread(told, action)


async def _one(request: Request, word: str, place: str, job: Target, at: str | float | None = None) -> Response:
    order = _order(request, word, place, at)
    if isinstance(order, Response):
        return order
    action = await _views(request).desk.act(order, [job])
    if (refusal := _failed(action)) is not None:
        return refusal
    verdict = action.told[0].verdict if action.told else None
    match verdict:
        case Verdict.DONE:
            return Response(status_code=204, headers={"X-Action": action.id})
        case Verdict.NOT_FOUND:
            return problem(404, "Not found", action.told[0].why or f"{job.jid} is not in {order.stream}.")
        case Verdict.CONFLICT:
            return problem(409, "Conflict", "The scheduler has claimed it: it is on its way, or it is there already.")
        case _:
            return told(action, known=202)


def _order(request: Request, word: str, place: str, at: str | float | None) -> Order | Response:
    try:
        due = None if at is None else fields.instant(at)
        if isinstance(due, fields.Problem):
            return problem(422, "Parameters out of bounds", f"at: {due}")
        return Order(word, SETS[place], visitor(request), "api", due)
    except ValueError as error:
        return problem(422, "Parameters out of bounds", str(error))


def _views(request: Request) -> Views:
    views: Views = request.app.state.views
    return views
