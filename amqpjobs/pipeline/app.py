"""The pipeline put together: the lake's lock, Spark, and the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from amqpjobs.pipeline.ingest import Ingest
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.planner import Planner
from amqpjobs.pipeline.progress import Progress
from amqpjobs.pipeline.run import Loop
from amqpjobs.pipeline.session import session
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings


class Pipeline:
    """Holds the lake's lock while it is entered. `quick`: a JVM for short runs."""

    def __init__(self, settings: Settings, *, quick: bool = False) -> None:
        self.settings = settings
        self.lake = Lake(settings.lake_dir)
        self._quick = quick
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Raises LakeBusy before anything is started."""
        with ExitStack() as stack:
            stack.enter_context(self.lake.writing())
            self.spark = session(self.settings, quick=self._quick)
            self.planner = Planner(self.settings)
            stack.callback(self.planner.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, *, once: bool, most: int, stopped: Callable[[], bool] = lambda: False) -> None:
        """Read and sum up; see `Loop`."""
        upkeep = Upkeep(self.lake, self.settings)
        Loop(self.spark, self.lake, self.ingest(most), upkeep, Progress(), stopped, once).run()

    def ingest(self, most: int) -> Ingest:
        """What fills the raw tables, in as many slices as Spark has cores."""
        slices = self.spark.sparkContext.defaultParallelism
        return Ingest(self.spark, self.lake, self.planner, url=self.settings.url, most=most, slices=slices)

    def tidy(self) -> None:
        """What `run` does every hour."""
        Upkeep(self.lake, self.settings).run()
