"""One queue: how full, what runs from it, pause and resume, clear; as a page and as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from amqpjobs.model import names, text
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.listing import Search
from amqpjobs.streams.rows import Row
from amqpjobs.web import items, wording
from amqpjobs.web.auth import visitor
from amqpjobs.web.enqueued import Look
from amqpjobs.web.forms import back, form_of
from amqpjobs.web.lists import Told, views_of
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Limit, Offset, json_response, told
from amqpjobs.web.status import QueueLine
from amqpjobs.web.views import HOUR, Views

router = APIRouter()

Queue = Annotated[str, Path(description="Its name; `.` and `..`, which no address can have, as `~.` and `~..`.")]
SAID = {
    "pause": "{queue} is paused: no worker starts a job of it until it is resumed.",
    "resume": "{queue} is resumed.",
    "clear": "{count} jobs that waited in {queue} were thrown away.",
}


class Running(NamedTuple):
    """A job that a process says it runs now."""

    jid: str
    cls: str
    since: float | None
    process: str


@router.get("/api/job-queues/{queue}/jobs", tags=["queues"])
async def jobs(request: Request, queue: Queue, limit: Limit = 100, offset: Offset = 0) -> Response:
    """The jobs of a queue that the record knows, without taking any out to look: those that run, those that wait in the
    queue (where the enqueue log is on; `why` says what is missing of the `ready` ones), and those that will come."""
    queue = _named(queue)
    views = views_of(request)
    line = await _line(views, queue)
    if line is None:
        return _unknown(queue)
    now = _running_now(views, queue)
    look, rows = await views.enqueued.of(queue), await _to_come(views, queue, offset + limit)
    about = {"queue": queue, "ready": line.ready, "consumers": line.consumers, "paused": line.paused}

    def tell() -> dict[str, Any]:
        jobs = [*now, *_waiting(look), *_told_of(rows)][offset : offset + limit]
        return {**about, "waiting_listed": look.listed, "why": look.why, "jobs": jobs}

    return await told(tell)


@router.post("/api/job-queues/{queue}/pause", status_code=204, tags=["queues"])
async def pause(request: Request, queue: Queue) -> Response:
    """No worker starts a job of this queue until it is resumed."""
    queue = _named(queue)
    return await _ordered(request, queue, "pause", "api") or Response(status_code=204)


@router.post("/api/job-queues/{queue}/resume", status_code=204, tags=["queues"])
async def resume(request: Request, queue: Queue) -> Response:
    """Jobs of this queue are started again."""
    queue = _named(queue)
    return await _ordered(request, queue, "resume", "api") or Response(status_code=204)


@router.delete("/api/job-queues/{queue}/jobs", tags=["queues"])
async def clear(request: Request, queue: Queue) -> Response:
    """Throw away what is ready in this queue now. It cannot be undone."""
    queue = _named(queue)
    if not names.is_queue_name(queue):
        return _unknown(queue)
    try:
        count = await views_of(request).desk.empty(queue, by=visitor(request), via="api")
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    return json_response({"queue": queue, "cleared": count})


@router.get("/job-queues/{queue}", include_in_schema=False)
async def page(request: Request, queue: Queue, did: str = "", count: str = "0") -> Response:
    """The page; `did` says which order led to it."""
    queue = _named(queue)
    views = views_of(request)
    line = await _line(views, queue)
    if line is None:
        return _unknown(queue)
    done = None
    if did in SAID and count.isdecimal():
        done = Told(SAID[did].format(queue=queue, count=f"{int(count[:12]):,}"), wrong=False)
    now, state = request.app.state.clock.wall(), views.depths.queues.get(queue)
    counts = {
        stream: (await views.page(stream, Search(queue=queue, limit=1))).matching for stream in names.DELAYED
    }  # fmt: skip
    more = {
        "place": "job-queues", "queue": line, "told": done, "running": running(views, queue),
        "look": await views.enqueued.of(queue),
        "classes": await views.metrics.query(lambda: views.tally.classes(queue, now - HOUR)),
        "scheduled": counts[names.SCHEDULED], "retries": counts[names.RETRIES], "dead": counts[names.DEAD],
        "settings": (state and state.arguments) or {}, "depth": _depth_chart(views.depths.history.of(queue)),
        "served_by": [each for each in views.beats.present() if queue in each.beat.queues],
    }  # fmt: skip
    return await page_of(request, "job_queue.html", **more)


@router.post("/job-queues/{queue}", include_in_schema=False)
async def order(request: Request, queue: Queue) -> Response:
    """A button; to clear a queue, its name must have been typed."""
    queue = _named(queue)
    form = await form_of(request)
    match (form or {}).get("op"):
        case "pause" | "resume" as op:
            refused = await _ordered(request, queue, op, "web")
            return refused or back(request, f"job-queues/{wording.segment(queue)}", did=op)
        case "clear" if form is not None and form.get("confirm", "").strip() == queue and names.is_queue_name(queue):
            try:
                count = await views_of(request).desk.empty(queue, by=visitor(request), via="web")
            except BrokerError as error:
                return problem(503, "Not done", str(error))
            return back(request, f"job-queues/{wording.segment(queue)}", did="clear", count=str(count))
        case "clear":
            return problem(422, "Not confirmed", f"To clear the queue, type its name: {queue}. Nothing was done.")
        case _:
            return problem(422, "Parameters out of bounds", "This is no form of that page.")


def running(views: Views, queue: str | None = None) -> list[Running]:
    """What processes said that they run, the longest first."""
    found = [
        Running(job.jid, job.cls, job.started_at, process.beat.identity)
        for process in views.beats.present()
        for job in process.beat.running
        if queue is None or job.queue == queue
    ]
    return sorted(found, key=lambda each: (each.since is None, each.since or 0.0, each.jid))


async def _ordered(request: Request, queue: str, op: Literal["pause", "resume"], via: str) -> Response | None:
    """Give the order and wait until it shows; why not, or None."""
    if not names.is_queue_name(queue):
        return _unknown(queue)
    views = views_of(request)
    try:
        async with views.desk.orders(visitor(request), via) as orders:
            await (orders.pause if op == "pause" else orders.resume)(queue)
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    await views.see(lambda: (queue in views.paused) == (op == "pause") or None)
    return None


async def _line(views: Views, queue: str) -> QueueLine | None:
    """What is known of a queue; None for a name that none can have, or that nobody has ever used."""
    facts = await views.facts()
    return next((line for line in facts.queues if line.name == queue and names.is_queue_name(queue)), None)


def _named(queue: str) -> str:
    """The name that an address means: no other name has a `~`."""
    return queue.removeprefix("~")


def _unknown(queue: str) -> Response:
    why = "" if names.is_queue_name(queue) else " A queue's name is 1 to 200 of letters, digits and . _ - :"
    return problem(404, "Not found", f"No queue {queue!r} is known here.{why}")


def _running_now(views: Views, queue: str) -> list[dict[str, Any]]:
    return [
        {"jid": each.jid, "class": each.cls, "state": "running", "since": each.since, "process": each.process}
        for each in running(views, queue)
    ]


def _waiting(look: Look) -> list[dict[str, Any]]:
    return [
        {"jid": each.jid, "class": each.cls, "state": "waiting", "at": each.at, "args": each.args} for each in look.jobs
    ]


async def _to_come(views: Views, queue: str, most: int) -> list[tuple[str, str, Row]]:
    """What waits for its time to come to this queue: its stream, its state and its row."""
    found = []
    for stream, state in ((names.SCHEDULED, "scheduled"), (names.RETRIES, "retry")):
        page = await views.page(stream, Search(queue=queue, limit=min(most, 1000)))
        found += [(stream, state, row) for row in page.rows]
    return sorted(found, key=lambda each: each[2].due or 0.0)


def _told_of(rows: list[tuple[str, str, Row]]) -> list[dict[str, Any]]:
    return [{**items.item(stream, row), "state": state, "at": row.due} for stream, state, row in rows]


def _depth_chart(points: list[tuple[float, int]]) -> str:
    data = [[round(at) for at, _ in points], [ready for _, ready in points]]
    return text.dump({"unit": "", "series": [{"label": "ready", "tone": "accent"}], "data": data, "marks": []}).decode()
