"""Classes of jobs: how often, how long and how badly they ran, as pages and as JSON."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from amqpjobs.model import text
from amqpjobs.web import lake
from amqpjobs.web.lists import views_of
from amqpjobs.web.measures import PERIODS, USUAL, ClassLine, Course, Times
from amqpjobs.web.pages import page_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import Limit, Offset, json_response
from amqpjobs.web.views import Views

router = APIRouter()

LENGTHS = (*PERIODS, *lake.PERIODS)
"""What may be asked for, from the live fold and from the lake."""
Period = Annotated[
    str,
    Query(
        description=f"How far back to look: {', '.join(LENGTHS)}; what is longer than 72h comes from the pipeline.",
        json_schema_extra={"enum": list(LENGTHS)},
    ),
]


@router.get("/api/job-metrics", tags=["metrics"])
async def job_metrics(
    request: Request,
    period: Period = USUAL,
    class_: Annotated[
        str, Query(alias="class", max_length=500, description="Only this class, by its whole name.")
    ] = "",
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Each class that ran: count, mean run time, success rate, percentiles of run and wait; the most runs first."""
    if period not in LENGTHS:
        return problem(422, "Parameters out of bounds", f"period: one of {', '.join(LENGTHS)}")
    views, cls = views_of(request), text.safe(class_)
    if period in lake.PERIODS and views.lake.why_not is not None:
        return problem(404, "Not known here", views.lake.why_not)
    found = [line for line in await _classes(views, period) if cls in ("", line.cls)]
    listed = [_told(line) for line in found[offset : offset + limit]]
    return json_response(listed, headers={"X-Total-Count": str(len(found))})


@router.get("/job-metrics", include_in_schema=False)
async def listing(request: Request, period: str = USUAL) -> Response:
    """All classes over a period."""
    about = _about(request, period)
    found = await _classes(views_of(request), about["period"])
    return await page_of(request, "job_metrics.html", lines=found, **about)


@router.get("/job-metrics/{cls:path}", include_in_schema=False)
async def one_class(request: Request, cls: str, period: str = USUAL) -> Response:
    """One class over a period."""
    about, views = _about(request, period), views_of(request)
    if about["period"] in PERIODS:
        course = await views.measures.course(text.safe(cls), PERIODS[about["period"]])
    else:
        course = await views.lake.course(text.safe(cls), about["period"])
    charts = await asyncio.to_thread(_charts, course)
    more = {"cls": cls, "course": course, "total": course.total, "charts": charts}
    return await page_of(request, "job_class.html", **more, **about)


async def _classes(views: Views, period: str) -> list[ClassLine]:
    if period in PERIODS:
        return await views.measures.classes(PERIODS[period])
    return await views.lake.classes(period)


def _about(request: Request, period: str) -> dict[str, Any]:
    """What these pages say of their period; an unknown one is the usual."""
    period, long = period if period in LENGTHS else USUAL, views_of(request).lake
    of_lake = period in lake.PERIODS
    return {
        "place": "job-metrics", "told": None, "period": period, "periods": LENGTHS, "of_lake": of_lake,
        "why_not": long.why_not if of_lake else None, "lake_until": long.until,
    }  # fmt: skip


def _told(line: ClassLine) -> dict[str, Any]:
    return {
        "class": line.cls,
        "count": line.ran,
        "failed": line.failed,
        "avg_ms": _ms(line.mean_run),
        "success_rate": (line.ran - line.failed) / line.ran if line.ran else None,
        "run_ms": _percentiles(line.run),
        "wait_ms": _percentiles(line.wait),
    }


def _percentiles(times: Times) -> dict[str, float | None]:
    return {name: _ms(value) for name, value in times._asdict().items()}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _charts(course: Course) -> dict[str, str]:
    """What the page's charts draw, each a JSON text: one value a slot, none where nothing ran."""
    slots = range(course.since, course.until + 1, course.step)
    points = {point.at: point for point in course.points}
    if len(points) > 1:
        slots = slots[:-1]  # the one that has only begun would look like a fall
    marks = [[at, version] for at, version in course.versions]

    def chart(unit: str, series: list[tuple[str, str, list[float | None]]]) -> str:
        told = [{"label": label, "tone": tone, "dash": label == "p99"} for label, tone, _ in series]
        values = [list(slots), *(each for _, _, each in series)]
        return text.dump({"unit": unit, "series": told, "data": values, "marks": marks, "step": course.step}).decode()

    runs = [points[at].ran if at in points else 0 for at in slots]
    failed = [points[at].failed if at in points else 0 for at in slots]
    times = {
        name: [
            (label, tone, [getattr(getattr(points[at], name), label) if at in points else None for at in slots])
            for label, tone in (("p50", "soft"), ("p95", "accent"), ("p99", "faint"))
        ]
        for name in ("run", "wait")
    }
    ran: list[tuple[str, str, list[float | None]]] = [
        ("runs", "accent", [*map(float, runs)]), ("failed", "wrong", [*map(float, failed)]),
    ]  # fmt: skip
    return {"runs": chart("", ran), "run": chart("s", times["run"]), "wait": chart("s", times["wait"])}
