"""Whatever is killed while it is read, each offset is in each table once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.model import names
from amqpjobs.pipeline.ingest import Ingest
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.planner import Planner
from amqpjobs.pipeline.progress import Progress
from amqpjobs.pipeline.run import Loop
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings
from tests.patience import PATIENCE
from tests.pipeline import streams
from tests.pipeline.cluster import words
from tests.pipeline.conftest import ALONE, UNCOMPILED, Pipe
from tests.pipeline.streams import append, metric, mixed
from tests.pipeline.test_spark_ingest import expected, query


def check(lake: Lake, metrics: list[dict[str, Any]]) -> None:
    """Every entry once in every table, and sums as plain Python counts them."""
    count = len(metrics)
    places = 'count(DISTINCT (epoch, "offset", item))'
    assert query(lake, "raw_metrics", f"SELECT count(*), count(DISTINCT jid), {places} FROM {{t}}") == [(count,) * 3]
    for table in ("metrics_minute", "metrics_hour", "metrics_day"):
        found = query(
            lake, table, "SELECT class, sum(count), sum(failed), sum(retried), sum(run_us) FROM {t} GROUP BY 1"
        )
        assert sorted(found) == expected(metrics), table


def test_killed_python_workers_change_nothing(pipe: Pipe, declared: Settings, lake: Lake) -> None:
    append(declared, names.METRICS, mixed(metrics := [metric(n) for n in range(2000)]))
    done = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        rng = random.Random(5)
        while not done.wait(rng.uniform(0.3, 1.0)) and len(killed) < 3:
            workers = [
                each for each in psutil.Process().children(recursive=True) if "amqpjobs.pipeline.daemon" in words(each)
            ]
            # The daemon is the parent of the workers: either may go.
            if workers:
                victim = rng.choice(workers)
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        pipe(most=30)
    finally:
        done.set()
        killer.join()
    assert killed
    check(lake, metrics)


CUTS = [("raw_metrics", "before"), ("raw_metrics", "after"), ("metrics_minute", "after"), ("metrics_hour", "before")]


def test_a_commit_that_was_cut_short_is_made_once(
    pipe: Pipe, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kill just before the commit of a table, or just after it."""
    append(declared, names.METRICS, mixed(metrics := [metric(n) for n in range(300)]))
    appending = Lake.append
    for table, moment in CUTS:

        def cut(self: Lake, name: str, *arguments: Any, table: str = table, moment: str = moment) -> int:
            if name != table or moment == "after":
                appending(self, name, *arguments)
            if name == table:
                raise KeyboardInterrupt
            return 0

        monkeypatch.setattr(Lake, "append", cut)
        with pytest.raises(KeyboardInterrupt):
            pipe()
        added = metric(len(metrics))
        append(declared, names.METRICS, [added])
        metrics.append(added)
        monkeypatch.setattr(Lake, "append", appending)
    pipe()
    check(lake, metrics)


@pytest.mark.timeout(6 * PATIENCE)  # a second JVM starts, which takes minutes on a machine that has others to run
def test_a_killed_driver_is_replaced_by_the_next(pipe: Pipe, declared: Settings, lake: Lake, tmp_path: Path) -> None:
    append(declared, names.METRICS, mixed(metrics := [metric(n) for n in range(2000)]))
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in UNCOMPILED.items()))
    told = {"AMQPJOBS_URL": declared.url, "AMQPJOBS_LAKE_DIR": str(lake.folder), "AMQPJOBS_SPARK_MASTER": ALONE}
    environment = {**os.environ, **told, "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "amqpjobs.pipeline", "run", "--quick", "--batch", "10"]
    with (tmp_path / "log").open("w+") as log:
        driver = subprocess.Popen(command, env=environment, stderr=log, stdout=log, start_new_session=True)
        try:
            _await_batch(tmp_path / "log", driver)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    before = query(lake, "raw_metrics", "SELECT count(*) FROM {t}")[0][0]
    assert 0 < before < len(metrics), "killed in the middle"
    append(declared, names.METRICS, mixed(more := [metric(n) for n in range(2000, 2500)]))
    pipe()
    check(lake, metrics + more)


def _await_batch(log: Path, driver: subprocess.Popen[bytes]) -> None:
    waiting = threading.Event()
    for _ in range(int(4 * PATIENCE / 0.05)):
        text = log.read_text()
        if "raw_metrics: " in text:
            return
        assert driver.poll() is None, text
        waiting.wait(0.05)
    raise AssertionError(f"no batch:\n{log.read_text()}")


async def test_a_broker_that_restarts_is_read_on(spark: Any, node: PrivateNode, lake: Lake) -> None:
    settings = Settings(url=node.url)
    await asyncio.to_thread(streams.declare, settings)
    await asyncio.to_thread(append, settings, names.METRICS, mixed(metrics := [metric(n) for n in range(600)]))
    stopping, seen = threading.Event(), threading.Event()

    class Watched(Progress):
        def done(self, messages: int, behind: int) -> None:
            seen.set()

    def read() -> None:
        planner = Planner(settings)
        try:
            with lake.writing():
                ingest = Ingest(spark, lake, planner, url=settings.url, most=20, slices=2)
                Loop(spark, lake, ingest, Upkeep(lake, settings), Watched(), stopping.is_set).run()
        finally:
            planner.close()

    reading = asyncio.create_task(asyncio.to_thread(read))
    try:
        assert await asyncio.to_thread(seen.wait, PATIENCE)
        node.kill()
        await node.stop()
        await node.start()
        more = [metric(n) for n in range(600, 700)]
        await asyncio.to_thread(streams.append_once, settings, names.METRICS, mixed(more))
        async with asyncio.timeout(2 * PATIENCE):
            while query(lake, "raw_metrics", "SELECT count(*) FROM {t}") != [(700,)]:
                assert not reading.done(), reading.result()
                await asyncio.sleep(0.2)
    finally:
        stopping.set()
        await reading
    assert query(lake, "raw_metrics", "SELECT count(DISTINCT jid) FROM {t}") == [(len(metrics + more),)]
