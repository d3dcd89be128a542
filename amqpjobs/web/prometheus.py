"""`GET /metrics`: the figures in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from amqpjobs.history.lag import FIGURES
from amqpjobs.web.live import Pulse
from amqpjobs.web.status import Status, Waiting

router = APIRouter()

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


Value = float | int | bool | None


class Family(NamedTuple):
    """One metric: its samples by the value of its label, "" for the one that has none."""

    name: str
    kind: str
    about: str
    label: str
    samples: Mapping[str, Value]


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counters and gauges for Prometheus. What is not known is left out, never 0."""
    pulse: Pulse = request.app.state.pulse
    return Response(exposition(await pulse.look()), media_type=MEDIA_TYPE)


def exposition(status: Status) -> str:
    """The text."""
    lines = []
    for name, kind, about, label, samples in _families(status):
        known = {key: value for key, value in samples.items() if value is not None}
        if known:
            lines += [f"# HELP amqpjobs_{name} {about}", f"# TYPE amqpjobs_{name} {kind}"]
        for key, value in known.items():
            labels = f'{{{label}="{key.translate(_ESCAPED)}"}}' if label else ""
            lines.append(f"amqpjobs_{name}{labels} {_number(value)}")
    return "\n".join(lines) + "\n"


def _families(status: Status) -> Iterator[Family]:
    facts = status.facts
    runs = facts.runs
    one: list[tuple[str, str, str, Value]] = [
        ("jobs_processed_total", "counter", "Jobs that ran, since the record begins.", runs.total if runs else None),
        ("jobs_failed_total", "counter", "Runs that failed, of those.", runs.failed_total if runs else None),
        ("scheduled_jobs", "gauge", "Jobs that wait for their time.", _count(facts.scheduled)),
        ("retry_jobs", "gauge", "Jobs that wait for their next try.", _count(facts.retries)),
        ("dead_jobs", "gauge", "Jobs that failed for good.", _count(facts.dead)),
        ("processes", "gauge", "Worker processes whose heartbeats arrive.", len(status.processes)),
        ("busy_workers", "gauge", "Jobs that run now.", status.busy),
        ("concurrency", "gauge", "Jobs that may run at a time.", status.concurrency),
        ("broker_up", "gauge", "Whether there is a connection to the broker.", facts.broker.up),
        ("broker_blocked", "gauge", "Whether the broker takes no messages.", facts.broker.blocked is not None),
        ("scheduler_leads", "gauge", "Whether a scheduler leads.", facts.leader),
        ("problems", "gauge", "Things that need a person.", sum(each.level == "wrong" for each in status.problems)),
    ]  # fmt: skip
    for name, kind, about, value in one:
        yield Family(name, kind, about, "", {"": value})
    queues = facts.queues
    yield Family("queue_ready", "gauge", "Jobs that wait in a queue.", "queue", {q.name: q.ready for q in queues})
    yield Family("queue_consumers", "gauge", "Consumers of a queue.", "queue", {q.name: q.consumers for q in queues})
    yield Family("queue_paused", "gauge", "Whether a queue is paused.", "queue", {q.name: q.paused for q in queues})
    waits = {queue.name: queue.latest_wait for queue in queues}
    yield Family("queue_latest_wait_seconds", "gauge", "How long its latest finished job had waited.", "queue", waits)
    lags = {lag.stream: lag.seconds for lag in facts.lags}
    yield Family("view_lag_seconds", "gauge", "For how long a view has been behind its stream.", "stream", lags)
    for figure, (name, about) in FIGURES.items():
        yield Family(name, "gauge", about, "stream", {each.stream: getattr(each, figure) for each in facts.lake})


def _count(waiting: Waiting | None) -> int | None:
    return None if waiting is None else waiting.count


def _number(value: float | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool | int) else repr(float(value))
