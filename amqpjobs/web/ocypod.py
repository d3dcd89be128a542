"""Ocypod's HTTP interface to tracked jobs, at its own paths: its clients and workers run as they are."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from amqpjobs.model.tracked import DEFAULT_POLICY, Judged, Tracked, Word
from amqpjobs.model.tracked_commands import MOST_TEXT, Beat, Delete, DropQueue, Report, SetQueue, Take
from amqpjobs.model.tracked_settings import policy_of
from amqpjobs.web import ocypod_wire as wire
from amqpjobs.web import schemas
from amqpjobs.web.ocypod_config import OcypodConfig
from amqpjobs.web.problems import problem
from amqpjobs.web.tracked import answer, done, door, judged

router = APIRouter()

Name = Annotated[str, Path(description="A queue's name.", json_schema_extra={"pattern": schemas.QUEUE})]
Tag = Annotated[str, Path(description="A tag.", json_schema_extra={"maxLength": MOST_TEXT})]
_FIELD = "|".join(wire.FIELDS)
Fields = Annotated[
    str | None,
    Query(
        description="Names with commas between them: only these.",
        json_schema_extra={"pattern": f"^({_FIELD})(,({_FIELD}))*$"},
    ),
]
_CREATED: dict[int | str, dict[str, Any]] = {201: {"description": "It was created; its address is in `location`."}}
ATTEMPT = "X-Attempt"
"""The token of an attempt: told to who takes a job, and shown by who holds it."""


@router.get("/queue")
async def queues(request: Request) -> Response:
    """All queues."""
    it = door(request)
    return answer(await it.query(it.view.store.queues))


@router.get("/queue/{name}")
async def queue(request: Request, name: Name) -> Response:
    """A queue's settings."""
    if not wire.is_queue(name):
        return _bad_name()
    policy = await door(request).queue(name)
    return problem(404, "Not found", "There is no such queue.") if policy is None else answer(wire.shown_queue(policy))


@router.put("/queue/{name}", status_code=204, responses=_CREATED, openapi_extra=schemas.body(schemas.OCYPOD_QUEUE))
async def put_queue(request: Request, name: Name) -> Response:
    """Create a queue, or give it other settings; what is not given is as by default."""
    if not wire.is_queue(name):
        return _bad_name()
    try:
        policy = policy_of(DEFAULT_POLICY, wire.read_settings(wire.read_object(await _body(request))))
    except wire.BadBody as error:
        return _bad(error)

    def told(found: Judged) -> Response:
        if found.verdict.word is Word.CREATED:
            return Response(status_code=201, headers={"location": _path(request, f"/queue/{name}")})
        return Response(status_code=204)

    return await judged(request, SetQueue(name, policy), told)


@router.delete("/queue/{name}")
async def delete_queue(request: Request, name: Name) -> Response:
    """Delete a queue and what waits in it."""
    return await judged(request, DropQueue(name), done) if wire.is_queue(name) else _bad_name()


@router.get("/queue/{name}/job")
async def take(request: Request, name: Name) -> Response:
    """Take the next job, if there is one. It changes things, so it is guarded like any other write."""
    if not wire.is_queue(name):
        return _bad_name()
    it = door(request)
    if delay := _config(request).next_job_delay:
        await it.clock.sleep(delay)
    if await it.is_idle(name, None):
        return Response(status_code=204)
    return await judged(request, Take(name), _taken)


@router.post("/queue/{name}/job", status_code=201, openapi_extra=schemas.body(schemas.OCYPOD_JOB))
async def create(request: Request, name: Name) -> Response:
    """A new job."""
    if not wire.is_queue(name):
        return _bad_name()
    try:
        act = wire.read_dispatch(name, await _body(request))
    except wire.BadBody as error:
        return _bad(error)

    def told(found: Judged) -> Response:
        job = found.verdict.job
        return answer(job, 201, location=_path(request, f"/job/{job}"))

    return await judged(request, act, told)


@router.get("/job/{id_}")
async def job(request: Request, id_: str, fields: Fields = None) -> Response:
    """A job, or some fields of it."""
    try:
        wanted = wire.wanted_fields(fields)
    except wire.BadBody as error:
        return _bad(error)
    found = await _job(request, id_)
    return _no_job() if found is None else answer({name: wire.FIELDS[name](found) for name in wanted})


@router.get("/job/{id_}/status")
async def status(request: Request, id_: str) -> Response:
    """A job's status."""
    found = await _job(request, id_)
    return _no_job() if found is None else answer(wire.status_of(found))


@router.get("/job/{id_}/output")
async def output(request: Request, id_: str) -> Response:
    """A job's output."""
    found = await _job(request, id_)
    return _no_job() if found is None else answer(wire.FIELDS["output"](found))


@router.patch("/job/{id_}", openapi_extra=schemas.body(schemas.OCYPOD_REPORT))
async def update(request: Request, id_: str) -> Response:
    """A job's status or output, or both."""
    number = _number(id_)
    if number is None:
        return _no_job()
    try:
        act = wire.read_report(number, request.headers.get(ATTEMPT), await _body(request))
    except wire.BadBody as error:
        return _bad(error)
    if act.status is None and act.output is None:  # nothing is asked for
        return _no_job() if await door(request).job(number) is None else Response(status_code=204)
    return await judged(request, act, done)


@router.delete("/job/{id_}")
async def delete(request: Request, id_: str) -> Response:
    """Forget a job, whatever it does."""
    number = _number(id_)
    return _no_job() if number is None else await judged(request, Delete(number), done)


@router.put("/job/{id_}/heartbeat")
async def heartbeat(request: Request, id_: str) -> Response:
    """A sign of life of a running job."""
    number = _number(id_)
    return _no_job() if number is None else await judged(request, Beat(number, request.headers.get(ATTEMPT)), done)


@router.put("/job/{id_}/output", openapi_extra=schemas.body({}))
async def put_output(request: Request, id_: str) -> Response:
    """The output of a running job."""
    number = _number(id_)
    if number is None:
        return _no_job()
    try:
        raw = await _body(request)
        wire.parse(raw)
    except wire.BadBody as error:
        return _bad(error)
    return await judged(request, Report(number, request.headers.get(ATTEMPT), output=raw.strip()), done)


@router.get("/tag/{name}")
async def tagged(request: Request, name: Tag) -> Response:
    """The jobs that have a tag."""
    if not wire.is_tag(name):
        return problem(400, "Bad request", "That can be no tag.")
    it = door(request)
    return answer(await it.query(lambda: it.view.store.tagged(name)))


@router.get("/info")
async def info(request: Request) -> Response:
    """How many jobs there are, by status and by queue."""
    it = door(request)
    by_state, queued = await it.query(lambda: (it.view.store.counts(), it.view.store.queued()))
    jobs: Counter[str] = Counter()
    for state, count in by_state.items():
        jobs[wire.STATUS.get(state, state.value)] += count
    return answer({"version": _version(), "jobs": jobs, "queues": {name: {"queued": n} for name, n in queued.items()}})


@router.get("/info/version")
async def version() -> Response:
    """Our version."""
    return answer(_version())


@router.get("/health")
async def health(request: Request) -> Response:
    """Whether the jobs can be read and written now."""
    trouble = door(request).trouble
    return answer({"status": "healthy"} if trouble is None else {"status": "unhealthy", "error": trouble})


def _taken(found: Judged) -> Response:
    if found.job is None:
        return Response(status_code=204)
    shown = {name: wire.FIELDS[name](found.job) for name in ("id", "input")}
    return answer(shown, X_Attempt=found.job.token)


async def _job(request: Request, id_: str) -> Tracked | None:
    number = _number(id_)
    return None if number is None else await door(request).job(number)


def _number(id_: str) -> int | None:
    return int(id_) if id_.isascii() and id_.isdigit() and len(id_) < 19 else None


async def _body(request: Request) -> bytes:
    raw = await request.body()
    most = _config(request).max_body_size
    if len(raw) > most:
        raise wire.TooLong(most)
    return raw


def _config(request: Request) -> OcypodConfig:
    found: OcypodConfig = request.app.state.ocypod
    return found


def _path(request: Request, path: str) -> str:
    return str(request.scope.get("root_path", "")) + path


def _version() -> str:
    return importlib.metadata.version("amqpjobs")


def _no_job() -> Response:
    return problem(404, "Not found", "There is no such job.")


def _bad_name() -> Response:
    return problem(400, "Bad request", "A queue's name is 1 to 200 of letters, digits and ._-:")


def _bad(error: wire.BadBody) -> Response:
    if isinstance(error, wire.TooLong):
        return problem(413, "Too large", str(error))
    return problem(400, "Bad request", str(error))
