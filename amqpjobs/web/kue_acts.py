"""What is done with tracked jobs over HTTP, under `/api/jobs`: Kue's jobs, Queasy's singletons, workers' reports."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response

from amqpjobs.model import text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import DEFAULT_POLICY, Flags, Judged, RunAt, Word
from amqpjobs.model.tracked_commands import Beat, Bump, Delete, Dispatch, Report, Take, Withdraw
from amqpjobs.model.tracked_priority import NAMES
from amqpjobs.model.tracked_settings import policy_of
from amqpjobs.web import schemas
from amqpjobs.web.kue import shown
from amqpjobs.web.problems import problem
from amqpjobs.web.tracked import answer, done, door, judged, whole

router = APIRouter(prefix="/api/jobs", tags=["tracked jobs"])

MOST = 2**53
"""A priority's most: up to here every language's numbers are exact."""
_JSON = ConfigDict(extra="forbid", strict=True)
Number = Annotated[int, Path(ge=0, lt=10**18, description="Of a tracked job, its number.")]


def _either(schema: schemas.Schema) -> None:
    schema["anyOf"] = [{"required": [name], "properties": {name: {"type": "string"}}} for name in ("queue", "type")]


Priority = Annotated[
    Annotated[int, Field(ge=-MOST, le=MOST)] | str,
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": -MOST, "maximum": MOST}, {"type": "string", "enum": [*NAMES]}]}
    ),
]


class NewJob(BaseModel):
    """A job. `delay` in milliseconds, `run_at` in seconds since 1970; `settings` durations in seconds.

    With `amqp` it is offered to AMQP workers too, as a job of the class `type`.
    """

    model_config = _JSON

    type: str = Field(default="", max_length=4096)
    queue: str = Field(default="default", pattern=schemas.QUEUE)
    data: Any = None
    key: str = Field(default="", max_length=4096)
    priority: Priority = 0
    tags: list[str] = Field(default_factory=list, max_length=100)
    delay: float | None = Field(default=None, ge=0, le=1e12)
    run_at: float | None = Field(default=None, ge=-1e11, le=1e11)
    settings: Annotated[dict[str, Any], WithJsonSchema(schemas.POLICY)] = Field(default_factory=dict)
    update_data: bool = True
    update_run_at: bool | Literal["if_later", "if_earlier"] = True
    update_retry_strategy: bool = False
    reset_counts: bool = False
    amqp: bool = False


class Wanted(BaseModel):
    """What to take: the next of a queue, of a type, or of both."""

    model_config = _JSON | ConfigDict(json_schema_extra=_either)

    queue: str | None = Field(default=None, pattern=schemas.QUEUE)
    type: str | None = Field(default=None, max_length=4096)
    worker: str = Field(default="", max_length=4096)


class Worker(BaseModel):
    """A worker, and the queue that it speaks of."""

    model_config = _JSON

    worker: str = Field(min_length=1, max_length=4096)
    queue: str | None = Field(default=None, pattern=schemas.QUEUE)


class Key(BaseModel):
    """The job of a key."""

    model_config = _JSON

    queue: str = Field(pattern=schemas.QUEUE)
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


async def create(request: Request, job: NewJob) -> Response:
    """A new job: 201. Of a `key` that waits already, what its flags say is changed: 200."""
    priority = NAMES.get(job.priority) if isinstance(job.priority, str) else job.priority
    if priority is None:
        return problem(422, "Parameters out of bounds", f"priority is a number or one of {', '.join(NAMES)}")
    settings = {name: whole(each) if name in ("retries", "max_stalls") else each for name, each in job.settings.items()}
    try:
        policy_of(DEFAULT_POLICY, settings)
    except (TypeError, ValueError) as error:
        return problem(422, "Parameters out of bounds", f"settings: {error}")
    if job.amqp and not job.type:
        return problem(422, "Parameters out of bounds", "amqp needs a type: the class that AMQP workers know it by")
    run_at = door(request).clock.wall() + job.delay / 1000 if job.delay is not None else job.run_at
    at = RunAt(str(job.update_run_at).lower())
    flags = Flags(job.update_data, at, job.update_retry_strategy, job.reset_counts)
    data = await asyncio.to_thread(text.member, await request.body(), "data") or b"null"
    act = Dispatch(
        job.queue, data, job.key, job.type, priority, tuple(job.tags), run_at, settings, flags, amqp=job.amqp
    )  # fmt: skip

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
    """A sign of life of all that a worker runs; 404: nothing of it runs any more, it was evicted."""

    def told(found: Judged) -> Response:
        if found.verdict.word is Word.EMPTY:
            return problem(404, "Not found", "Nothing of this worker runs: it has nothing, or was silent for too long.")
        return done(found)

    return await judged(request, Bump(worker.worker, worker.queue), told)


@router.post("/cancel", status_code=204)
async def cancel(request: Request, key: Key) -> Response:
    """Cancel the job of a key, if it has not begun; 409: it runs."""
    return await judged(request, Withdraw(key.queue, key.key), done)


@router.patch("/{jid:path}", status_code=204)
async def report(request: Request, jid: Number, said: Annotated[Said, Body()]) -> Response:
    """Output, progress, log lines, and how it ended."""
    output = await asyncio.to_thread(text.member, await request.body(), "output")
    status = None if said.status is None else State(said.status)
    act = Report(
        jid, request.headers.get("X-Attempt"), status, output, said.error, said.permanent, said.retry_at,
        said.progress, tuple(said.lines),
    )  # fmt: skip
    return await judged(request, act, done)


@router.post("/{jid:path}/beat", status_code=204)
async def beat(request: Request, jid: Number) -> Response:
    """A sign of life of one job."""
    return await judged(request, Beat(jid, request.headers.get("X-Attempt")), done)


@router.delete("/{jid:path}", status_code=204)
async def delete(request: Request, jid: Number) -> Response:
    """Forget a job, whatever it does."""
    return await judged(request, Delete(jid), done)


def _whole(found: Judged) -> dict[str, Any]:
    """The job of a verdict; of a repeated command, it may be gone."""
    return {"id": found.verdict.job} if found.job is None else shown(found.job)
