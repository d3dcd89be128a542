"""Years of what ran on the pages, from a lake that is made here; and what they say where there is none."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.history import lag
from amqpjobs.history.lag import Lag
from amqpjobs.history.reader import History
from amqpjobs.model import names
from amqpjobs.pipeline.tables import ROLLUPS
from amqpjobs.settings import Settings
from amqpjobs.web.status import Day
from amqpjobs.web.views import _joined
from tests.pipeline import sums
from tests.web.conftest import Dashboard, serving

Eventually = Callable[..., Awaitable[Any]]
DAY = 86_400.0
RUNS = 3
"""Runs of a class on each day: one takes a second, one fails."""


def lake(folder: Path, at: float) -> None:
    """400 days of two classes, told by a pipeline that wrote last at `at`."""
    midnight = time.time() // DAY * DAY
    days = [midnight - n * DAY for n in range(1, 401)]
    runs = [
        (day + 3600 * n, cls, "low", 1_000_000 if n else 2_000, n == 0)
        for day in days for cls in ("Report", "Reports") for n in range(RUNS)
    ]  # fmt: skip
    for name, rollup in ROLLUPS.items():
        if rollup.unit != "minute":  # of these there is a file a day
            sums.write(folder, name, sums.rows(runs, name))
    lag.write(folder, [Lag(names.METRICS, 0, at, at)])


def drawn(page: str) -> list[dict[str, Any]]:
    return [json.loads(unescape(found)) for found in re.findall(r'data-chart="([^"]*)"', page)]


async def test_years_are_drawn_from_the_lake(settings: Settings, tmp_path: Path, eventually: Eventually) -> None:
    folder = tmp_path / "lake"
    lake(folder, time.time() - 3 * DAY)
    async with serving(settings.model_copy(update={"lake_dir": folder})) as served:

        async def read() -> bool:
            return (await served.get("/api/job-metrics?period=1y")).status_code == 200

        await eventually(read)
        await eventually(lambda: _shows(served, "/job-queues", "Jobs that ran on each of"))
        assert "The pipeline has said nothing for 3 d" in (await served.get("/job-queues")).text
        found = (await served.get("/api/job-metrics?period=90d&class=Report")).json()
        assert [(each["class"], each["count"], each["failed"]) for each in found] == [("Report", 89 * RUNS, 89)]
        assert found[0]["run_ms"]["p95"] == pytest.approx(1000, rel=0.02)
        page = (await served.get("/job-metrics?period=5y")).text
        assert "From the pipeline&#39;s lake" in page or "From the pipeline's lake" in page
        assert page.count(f'data-label="Runs">{400 * RUNS:,}<') == 2
        for period, step, slots in (("7d", 3600, 6 * RUNS), ("1y", 86_400, 364)):
            page = (await served.get(f"/job-metrics/Report?period={period}")).text
            runs, run = drawn(page)
            assert runs["step"] == step
            assert sum(ran > 0 for ran in runs["data"][1]) == slots
            assert run["unit"] == "s"
            assert max(each for each in run["data"][1] if each is not None) == pytest.approx(1, rel=0.02)


async def test_the_lake_is_asked_while_its_reader_gets_warm(
    settings: Settings, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, begun, go_on = tmp_path / "lake", threading.Event(), threading.Event()
    warm = History.warm

    def slow(history: History) -> None:
        begun.set()
        go_on.wait()
        warm(history)

    monkeypatch.setattr(History, "warm", slow)
    lake(folder, time.time())
    async with serving(settings.model_copy(update={"lake_dir": folder})) as served:
        try:
            await eventually(begun.is_set)
            found = (await served.get("/api/job-metrics?period=90d&class=Report")).json()
            assert [each["count"] for each in found] == [89 * RUNS]
            assert "Jobs that ran on each of" not in (await served.get("/job-queues")).text
        finally:
            go_on.set()
        await eventually(lambda: _shows(served, "/job-queues", "Jobs that ran on each of"))


async def _shows(served: Dashboard, path: str, text: str) -> bool:
    return text in (await served.get(path)).text


async def test_without_a_lake_the_page_says_so(dashboard: Dashboard) -> None:
    for path in ("/job-metrics?period=1y", "/job-metrics/Report?period=5y"):
        assert "There is no lake in" in (await dashboard.get(path)).text
    refused = await dashboard.get("/api/job-metrics?period=30d")
    assert (refused.status_code, refused.json()["title"]) == (404, "Not known here")
    assert "The pipeline" not in (await dashboard.get("/job-queues")).text


def test_the_days_of_both_are_joined() -> None:
    """Who knows more of the day on which counting began tells it; later ones are the live fold's, empty ones shown."""
    of_lake = [Day(0 * DAY, 5, 1), Day(2 * DAY, 9, 0), Day(3 * DAY, 4, 0)]
    live = [Day(2 * DAY, 3, 0), Day(3 * DAY, 2, 0)]
    joined = _joined(of_lake, live, since=2.5 * DAY)
    assert joined == [Day(0, 5, 1), Day(DAY, 0, 0), Day(2 * DAY, 9, 0), Day(3 * DAY, 2, 0)]
    assert _joined([], [], since=0) == []
