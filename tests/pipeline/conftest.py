"""One JVM for all the tests that need Spark: they run in one process (tests/parallel.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.pipeline.ingest import Ingest
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.planner import Planner
from amqpjobs.pipeline.progress import Progress
from amqpjobs.pipeline.rollup import roll_up
from amqpjobs.pipeline.run import Loop
from amqpjobs.pipeline.session import session
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings
from tests.pipeline import streams

UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of little data, compiling a query takes longer than running it does."""
ALONE = "local[1,3]"
"""One task at a time: others would only wait for a core, each in a Python process that has to be started."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    extra = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    extra |= {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"} | UNCOMPILED
    spark = session(Settings(spark_master=ALONE), extra, quick=True)
    yield spark
    spark.stop()


@pytest.fixture
def declared(settings: Settings) -> Settings:
    """Settings of a virtual host that has all our streams."""
    streams.declare(settings)
    return settings


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


Pipe = Callable[..., None]


@pytest.fixture
def pipe(spark: Any, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Run the pipeline once, to the end of what is there; without `sums`, as if it was killed before it summed up."""

    def run(most: int = 250_000, *, sums: bool = True) -> None:
        planner = Planner(declared)
        try:
            monkeypatch.setattr("amqpjobs.pipeline.run.roll_up", roll_up if sums else lambda spark, lake: [])
            with lake.writing():
                ingest = Ingest(spark, lake, planner, url=declared.url, most=most, slices=2)
                loop = Loop(spark, lake, ingest, Upkeep(lake, declared), Progress(), lambda: False, once=True)
                loop.run()
        finally:
            planner.close()

    return run
