"""The pipeline's loop: read what is new, sum it up every minute, tidy every hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from amqpjobs.history import lag
from amqpjobs.history.lag import Lag
from amqpjobs.pipeline.ingest import Ingest, Step, StreamAnew
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.progress import Progress
from amqpjobs.pipeline.rollup import roll_up
from amqpjobs.pipeline.tables import RAW
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.streams.errors import BrokerError, Refused

log = logging.getLogger("amqpjobs.pipeline")

IDLE_PAUSE = 5.0
"""Seconds to wait once all is in the lake: a batch costs a second or two of CPU and some files, however small it is."""
FAILED_PAUSE = 2.0
ROLLUP_SECONDS = 60.0
"""Sums are this old at most."""
UPKEEP_SECONDS = 3600.0
MOST_FAILURES = 10
"""Failures in a row after which the process ends, for whoever supervises it to see."""


class GivenUp(Exception):
    """It failed again and again."""


@dataclass
class Loop:
    """Runs until `stopped()`; `once`: until all that was there at the start is in the lake and summed up."""

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    upkeep: Upkeep
    progress: Progress
    stopped: Callable[[], bool]
    once: bool = False
    _failures: int = 0
    _rolled: float = field(default_factory=time.monotonic)
    _tidied: float = field(default_factory=time.monotonic)
    _full: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Raises GivenUp, Refused (rights, addresses); what a person must put right."""
        while not self.stopped():
            try:
                full = self._round()
            except Refused:
                raise
            except (BrokerError, StreamAnew, PySparkException, Py4JError) as error:
                self._failed(error)
                continue
            self._failures = 0
            if not full:
                continue
            if self.once:
                break
            time.sleep(IDLE_PAUSE)
        if not self.stopped():
            self._sum_up()
        self.progress.close()

    def _round(self) -> bool:
        """Read once of each stream that has something; whether all that was there is in the lake then."""
        began = time.time()
        planned = self.ingest.plan()
        self._tell({raw.stream: wanted.tail - wanted.start for raw, wanted in planned}, began)
        for raw, wanted in planned:
            if self.stopped():
                return True
            self._report(self.ingest.take(raw, wanted))
        self._tell({raw.stream: wanted.tail - wanted.end for raw, wanted in planned}, began)
        if planned and time.monotonic() - self._rolled >= ROLLUP_SECONDS:
            self._sum_up()
        if time.monotonic() - self._tidied >= UPKEEP_SECONDS:
            self._tidied = time.monotonic()
            self.upkeep.run()
        return all(wanted.tail <= wanted.end for _, wanted in planned)

    def _sum_up(self) -> None:
        began = time.monotonic()
        changed = roll_up(self.spark, self.lake)
        self._rolled = time.monotonic()
        if changed:
            log.info("summed up %s in %.1f s", ", ".join(dict.fromkeys(changed)), self._rolled - began)

    def _report(self, step: Step) -> None:
        rate = step.messages / max(step.seconds, 1e-6)
        words = f"{step.table}: {step.messages:,} messages, {step.rows:,} rows, {step.bad:,} bad"
        words += f", {step.repeated:,} repeated, {step.lost:,} lost" if step.repeated or step.lost else ""
        log.info("%s in %.1f s (%s/s), %s behind", words, step.seconds, f"{rate:,.0f}", f"{step.behind:,}")
        self.progress.done(step.messages, step.behind)

    def _tell(self, behind: Mapping[str, int], began: float) -> None:
        """Write the lag down: how many messages a stream had beyond the lake when this round began."""
        self._full |= {raw.stream: began for raw in RAW if not behind.get(raw.stream)}
        told = [Lag(raw.stream, behind.get(raw.stream, 0), self._full.get(raw.stream), time.time()) for raw in RAW]
        lag.write(self.lake.folder, told)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, BrokerError):  # a broker is waited for as long as it takes
            self._failures += 1
        reason = str(error).strip().splitlines() or [type(error).__name__]
        log.warning(
            "not read, trying again: %s", next((line for line in reversed(reason) if "RangeLost" in line), reason[0])
        )
        if self._failures >= MOST_FAILURES:
            raise GivenUp(reason[0]) from error
        time.sleep(FAILED_PAUSE)
