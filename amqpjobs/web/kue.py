"""Tracked jobs as JSON, under `/api/tracked`: Kue's listings, states and priorities, and Queasy's singletons."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from amqpjobs.model import text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Judged, RunAt, Tracked, Word
from amqpjobs.model.tracked_commands import Beat, Bump, Delete, Dispatch, Report, Take, Withdraw
from amqpjobs.model.tracked_settings import policy_of
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.web.live import SIGN_OF_LIFE, Pulse, event
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Limit, Offset
from amqpjobs.web.tracked import answer, done, door, judged, spliced

router = APIRouter(prefix="/api/tracked", tags=["tracked jobs"])

PRIORITIES = {"low": 10, "normal": 0, "medium": -5, "high": -10, "critical": -15}
STATES = {
    "inactive": (State.QUEUED,),
    "active": (State.RUNNING,),
    "complete": (State.COMPLETED,),
    "failed": (State.FAILED, State.TIMED_OUT),
    "delayed": (State.SCHEDULED, State.RETRYING, State.BLOCKED),
    "cancelled": (State.CANCELLED, State.REPLACED),
}
"""Kue's states, and one of ours, by those of the life cycle."""
NAMES = {state: name for name, states in STATES.items() for state in states}
"""Of each of ours, Kue's."""
BEHIND = 10_000
"""Changes that wait for a reader of events; who is further behind is told so, and to look again."""

JobType = Annotated[str | None, Query(alias="type", max_length=4096, description="Only jobs of this type.")]
_JSON = ConfigDict(extra="forbid")


class NewJob(BaseModel):
    """A job. `delay` in milliseconds, `run_at` in seconds since 1970; `settings` durations in seconds."""

    model_config = _JSON

    type: str = Field(default="", max_length=4096)
    queue: str = Field(default="default", pattern=r"^[A-Za-z0-9._:\-]{1,200}$")
    data: Any = None
    key: str = Field(default="", max_length=4096)
    priority: int | str = 0
    tags: list[str] = Field(default_factory=list, max_length=100)
    delay: float | None = Field(default=None, ge=0, le=1e12)
    run_at: float | None = Field(default=None, ge=-1e11, le=1e11)
    settings: dict[str, Any] = Field(default_factory=dict)
    update_data: bool = True
    update_run_at: bool | RunAt = True
    update_retry_strategy: bool = False
    reset_counts: bool = False


class Wanted(BaseModel):
    """What to take: the next of a queue, of a type, or of both."""

    model_config = _JSON

    queue: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._:\-]{1,200}$")
    type: str | None = Field(default=None, max_length=4096)
    worker: str = Field(default="", max_length=4096)


class Worker(BaseModel):
    """A worker, and the queue that it speaks of."""

    model_config = _JSON

    worker: str = Field(min_length=1, max_length=4096)
    queue: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._:\-]{1,200}$")


class Key(BaseModel):
    """The job of a key."""

    model_config = _JSON

    queue: str = Field(pattern=r"^[A-Za-z0-9._:\-]{1,200}$")
    key: str = Field(min_length=1, max_length=4096)


class Said(BaseModel):
    """What a worker says of a job; each member may be absent."""

    model_config = _JSON

    status: str | None = Field(default=None, pattern="^(completed|failed|cancelled)$")
    output: Any = None
    error: str = Field(default="", max_length=4096)
    permanent: bool = False
    retry_at: float | None = Field(default=None, ge=-1e11, le=1e11)
    progress: float | None = Field(default=None, allow_inf_nan=False)
    lines: list[str] = Field(default_factory=list, max_length=100)


@router.get("")
async def listed(  # noqa: PLR0917 - the query's names, as FastAPI takes them
    request: Request,
    state: str | None = None,
    type_: JobType = None,
    tag: Annotated[str | None, Query(max_length=4096, description="Only jobs with this tag.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Jobs in priority order: all, or of a state, of a type, with a tag."""
    if state is not None and state not in STATES:
        return problem(422, "Parameters out of bounds", f"state is one of {', '.join(STATES)}")
    states = list(NAMES) if state is None else STATES[state]
    it = door(request)
    found = await it.query(lambda: it.view.store.listed(states, type_, limit, offset, tag))
    return await asyncio.to_thread(lambda: answer([shown(job) for job in found]))


@router.get("/counts")
async def counts(request: Request) -> Response:
    """How many jobs there are in each of Kue's states."""
    it = door(request)
    known = await it.query(it.view.store.counts)
    return answer({name: sum(known.get(state, 0) for state in states) for name, states in STATES.items()})


@router.get("/types")
async def types(request: Request) -> Response:
    """All types that a job ever had."""
    it = door(request)
    return answer(await it.query(it.view.store.types))


@router.get("/events")
async def events(request: Request) -> Response:
    """State changes as server-sent events, from now on: `job`, and `gone` for what was deleted or has expired."""
    stream = _events(door(request), request.app.state.pulse)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.post("", status_code=201)
async def create(request: Request, job: NewJob) -> Response:
    """A new job: 201. Of a `key` that waits already, what its flags say is changed: 200."""
    priority = PRIORITIES.get(job.priority) if isinstance(job.priority, str) else job.priority
    if priority is None:
        return problem(422, "Parameters out of bounds", f"priority is a number or one of {', '.join(PRIORITIES)}")
    try:
        policy_of(DEFAULT_POLICY, job.settings)
    except (TypeError, ValueError) as error:
        return problem(422, "Parameters out of bounds", f"settings: {error}")
    run_at = door(request).clock.wall() + job.delay / 1000 if job.delay is not None else job.run_at
    at = RunAt(str(job.update_run_at).lower())
    flags = Flags(job.update_data, at, job.update_retry_strategy, job.reset_counts)
    data = await asyncio.to_thread(text.member, await request.body(), "data") or b"null"
    act = Dispatch(job.queue, data, job.key, job.type, priority, tuple(job.tags), run_at, job.settings, flags)

    def told(found: Judged) -> Response:
        return answer(_whole(found), 201 if found.verdict.word is Word.CREATED else 200)

    return await judged(request, act, told)


@router.post("/take")
async def take(request: Request, wanted: Wanted) -> Response:
    """The next job, its attempt's token in X-Attempt; 204 when there is none."""
    if wanted.queue is None and wanted.type is None:
        return problem(422, "Parameters out of bounds", "queue or type, or both")
    if await door(request).is_idle(wanted.queue, wanted.type):
        return Response(status_code=204)

    def told(found: Judged) -> Response:
        if found.job is None:
            return Response(status_code=204)
        return answer(_whole(found), X_Attempt=found.job.token)

    return await judged(request, Take(wanted.queue, wanted.type, wanted.worker), told)


@router.post("/bump", status_code=204)
async def bump(request: Request, worker: Worker) -> Response:
    """A sign of life of all that a worker runs; 410: nothing of it runs any more, it was evicted."""

    def told(found: Judged) -> Response:
        if found.verdict.word is Word.EMPTY:
            return problem(410, "Gone", "Nothing of this worker runs: it has nothing, or was silent for too long.")
        return done(found)

    return await judged(request, Bump(worker.worker, worker.queue), told)


@router.post("/cancel", status_code=204)
async def cancel(request: Request, key: Key) -> Response:
    """Cancel the job of a key, if it has not begun; 409: it runs."""
    return await judged(request, Withdraw(key.queue, key.key), done)


@router.get("/{id_}")
async def one(request: Request, id_: int, after: Annotated[int, Query(ge=0, le=2**31)] = 0) -> Response:
    """A job with its log, from line `after` on."""
    found = await life(door(request), id_, after)
    return problem(404, "Not found", "There is no such job.") if found is None else answer(found)


@router.patch("/{id_}", status_code=204)
async def report(request: Request, id_: int, said: Annotated[Said, Body()]) -> Response:
    """Output, progress, log lines, and how it ended."""
    output = await asyncio.to_thread(text.member, await request.body(), "output")
    status = None if said.status is None else State(said.status)
    act = Report(
        id_, request.headers.get("X-Attempt"), status, output, said.error, said.permanent, said.retry_at,
        said.progress, tuple(said.lines),
    )  # fmt: skip
    return await judged(request, act, done)


@router.post("/{id_}/beat", status_code=204)
async def beat(request: Request, id_: int) -> Response:
    """A sign of life of one job."""
    return await judged(request, Beat(id_, request.headers.get("X-Attempt")), done)


@router.delete("/{id_}", status_code=204)
async def delete(request: Request, id_: int) -> Response:
    """Forget a job, whatever it does."""
    return await judged(request, Delete(id_), done)


async def life(it: TrackedDoor, id_: int, after: int = 0) -> dict[str, Any] | None:
    """All that is known of a tracked job, for its page: `shown`, and its log; None when there is none."""

    def look() -> dict[str, Any] | None:
        job = it.view.store.get(id_)
        if job is None:
            return None
        lines = [{"n": n, "at": at, "line": line} for n, at, line in it.view.store.lines(id_, after)]
        return shown(job) | {"log": lines}

    return await it.query(look)


def shown(job: Tracked) -> dict[str, Any]:
    """A job. `state` in Kue's words, `status` in ours; `created_at` and `updated_at` in milliseconds, as Kue has
    them, other times in seconds."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "key": job.key or None,
        "state": NAMES[job.state],
        "status": job.state,
        "priority": job.priority,
        "tags": list(job.tags),
        "created_at": round(job.created_at * 1000),
        "updated_at": round(job.updated_at * 1000),
        "run_at": job.due,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "heard_at": job.beat_at,
        "worker": job.worker or None,
        "attempts": job.attempt,
        "retries": job.retried,
        "stalls": job.stalled,
        "jid": job.jid or None,
        "error": job.error or None,
        "progress": job.progress,
        "data": spliced(job.data),
        "output": spliced(job.output),
    }


def _whole(found: Judged) -> dict[str, Any]:
    """The job of a verdict; of a repeated command, it may be gone."""
    return {"id": found.verdict.job} if found.job is None else shown(found.job)


async def _events(it: TrackedDoor, pulse: Pulse) -> AsyncIterator[str]:
    changes: asyncio.Queue[int] = asyncio.Queue(BEHIND)
    behind = False

    def note(changed: set[int]) -> None:
        nonlocal behind
        for id_ in sorted(changed):
            if changes.full():
                behind = True
                return
            changes.put_nowait(id_)

    it.on_change.append(note)
    try:
        yield event("hello", "")
        while not pulse.closing:
            try:
                async with asyncio.timeout(SIGN_OF_LIFE / 10):
                    first = await changes.get()
            except TimeoutError:
                yield event("behind" if behind else "alive", "")
                behind = False
                continue
            ids = {first, *(changes.get_nowait() for _ in range(changes.qsize()))}
            found = await it.query(lambda ids=ids: [(id_, it.view.store.get(id_)) for id_ in sorted(ids)])  # type: ignore[misc]
            yield "".join(
                event("gone", str(id_)) if job is None else event("job", text.dump(shown(job)).decode())
                for id_, job in found
            )
    finally:
        it.on_change.remove(note)
