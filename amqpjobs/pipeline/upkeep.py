"""What keeps the lake small and quick: sums of one key added up, small files joined, old rows and files removed."""

from __future__ import annotations

import datetime
import logging
import time

from amqpjobs.pipeline import adding, jids
from amqpjobs.pipeline.lake import COMPACT, Lake
from amqpjobs.pipeline.tables import RAW, SCHEMAS, SUMS
from amqpjobs.settings import Settings, age_seconds

log = logging.getLogger("amqpjobs.pipeline")

KEEP_FILES_HOURS = 24
"""Files that no version of a table has any more are kept so long: somebody may be reading them."""
FEW = 4
"""Files of a day that are let be."""
INDEX_SECONDS = 86_000.0
"""How often the index of jids is brought up: who reads looks through what it lacks."""


class Upkeep:
    """Tidies a lake that its caller may write to."""

    def __init__(self, lake: Lake, settings: Settings) -> None:
        self._lake = lake
        self._ages = {raw.name: settings.lake_raw_age for raw in RAW if raw.keep}
        self._ages["metrics_minute"] = settings.lake_minutes_age

    def run(self, today: datetime.date | None = None) -> None:
        """All of it, once. `today` is the UTC day that ages count from."""
        day = today or datetime.datetime.now(datetime.UTC).date()
        for name, age in self._ages.items():
            self._forget(name, day - datetime.timedelta(seconds=age_seconds(age)))
        raw = day - datetime.timedelta(seconds=age_seconds(self._ages["raw_metrics"]))
        self._forget("jids", raw.replace(day=1))  # a month is of use while one of its days is there
        for name in SUMS:
            for date in self._crowded(name):
                self._add_up(name, date)
        if jids.age(self._lake, time.time()) > INDEX_SECONDS:
            jids.index(self._lake)
        for name in SCHEMAS:
            table = self._lake.table(name)
            if name not in SUMS and name != "jids" and self._crowded(name):
                table.optimize.compact(writer_properties=COMPACT)
            table.vacuum(KEEP_FILES_HOURS, dry_run=False, enforce_retention_duration=False)
            table.create_checkpoint()

    def _forget(self, name: str, before: datetime.date) -> None:
        """Whole days at once: no file is rewritten."""
        if any(date < before for date in self._files(name)):
            self._lake.table(name).delete(f"date < '{before.isoformat()}'")
            log.info("%s: what was before %s is removed", name, before)

    def _crowded(self, name: str) -> list[datetime.date]:
        return sorted(date for date, files in self._files(name).items() if len(files) > FEW)

    def _files(self, name: str) -> dict[datetime.date, list[str]]:
        """The files of each day."""
        found: dict[datetime.date, list[str]] = {}
        actions = self._lake.table(name).get_add_actions(flatten=True)
        if actions.num_rows:
            for path, date in zip(actions["path"].to_pylist(), actions["partition.date"].to_pylist(), strict=True):
                found.setdefault(date, []).append(path)
        return found

    def _add_up(self, name: str, date: datetime.date) -> None:
        """The rows of a day, one a key: its files are replaced in one commit, the table's marks stay as they are."""
        files = [str(self._lake.folder / name / path) for path in self._files(name)[date]]
        self._lake.replace(name, date, adding.added(name, files))
