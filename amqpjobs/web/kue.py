"""Tracked jobs as JSON, under `/api/jobs`: Kue's listings and states, and changes as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from amqpjobs.model import text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Tracked
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.web.live import SIGN_OF_LIFE, Pulse, event
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Limit, Offset
from amqpjobs.web.tracked import answer, door, spliced

router = APIRouter(prefix="/api/jobs", tags=["tracked jobs"])

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

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events, as long as they are read.", "content": {"text/event-stream": {"schema": {}}}}
}
JobType = Annotated[str | None, Query(alias="type", max_length=4096, description="Only jobs of this type.")]


@router.get("")
async def listed(  # noqa: PLR0917 - the query's names, as FastAPI takes them
    request: Request,
    state: Annotated[str | None, Query(json_schema_extra={"enum": [*STATES, None]})] = None,
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


@router.get("/events", response_class=StreamingResponse, responses=_STREAM)
async def events(request: Request) -> Response:
    """State changes as server-sent events, from now on: `job`, and `gone` for what was deleted or has expired."""
    stream = _events(door(request), request.app.state.pulse)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def life(it: TrackedDoor, id_: int, after: int = 0) -> dict[str, Any] | None:
    """All that is known of a tracked job, for its page: `shown`, and its log; None when there is none."""

    def look() -> dict[str, Any] | None:
        job = it.view.store.get(id_)
        if job is None:
            return None
        lines = [{"n": n, "at": at, "line": line} for n, at, line in it.view.store.lines(id_, after)]
        return shown(job) | {"log": lines}

    return await it.query(look)


async def numbered(it: TrackedDoor, jid: str, after: int = 0) -> dict[str, Any] | None:
    """As `life`, of the job that this is the number of."""
    return await life(it, int(jid), after) if jid.isascii() and jid.isdigit() and len(jid) < 19 else None


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
