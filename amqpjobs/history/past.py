"""Jobs of the past that the lake has with their arguments, chosen by a condition in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from amqpjobs.history.store import Store, span

Kind = Literal["dead", "retries", "scheduled", "enqueued"]
TABLES: dict[str, str] = {
    "dead": "raw_dead",
    "retries": "raw_retries",
    "scheduled": "raw_scheduled",
    "enqueued": "raw_enqueued",
}
_TYPES = {"dead": "dead_job", "retries": "retry", "scheduled": "scheduled_job", "enqueued": "enqueued"}

_FOR_EVER = 4e9

_LOADED = (
    "CREATE TABLE chosen AS SELECT * EXCLUDE (body) FROM {t} WHERE type = $3 AND bad IS NULL AND job IS NOT NULL"
    ' AND jid IS NOT NULL AND class IS NOT NULL AND "at" >= to_timestamp($1) AND "at" < to_timestamp($2)'
)
_RAN = (
    "ALTER TABLE chosen ADD COLUMN status VARCHAR; ALTER TABLE chosen ADD COLUMN error_class VARCHAR;"
    " UPDATE chosen SET status = ran.status, error_class = ran.error_class FROM"
    ' (SELECT jid, arg_max(status, "at") AS status, arg_max(error_class, "at") AS error_class FROM {t} GROUP BY 1)'
    " AS ran WHERE chosen.jid = ran.jid"
)
"""What became of jobs of the enqueue log: the status of the newest run, and the error of the newest that had one."""
_CHOSEN = (
    'SELECT jid, class, queue, epoch("at"), job FROM chosen WHERE ({where})'
    ' QUALIFY row_number() OVER (PARTITION BY jid ORDER BY epoch DESC, "offset" DESC, item DESC) = 1'
    ' ORDER BY "at", jid'
)


class BadCondition(Exception):
    """The condition is no SQL over the table's columns; the text says what DuckDB found."""


class PastJob(NamedTuple):
    """A job as it was: `job` is its JSON."""

    jid: str
    cls: str
    queue: str
    at: float
    job: str


def past_jobs(folder: Path, kind: Kind, since: float, until: float, where: str = "true") -> list[PastJob]:
    """The jobs whose entry (a death, a failure, an enqueue) lies in this time and fulfils `where`, oldest first.

    `where` is a condition over the columns of the raw table (docs/pipeline.md); it can read nothing else. Of a job with
    several entries the newest counts. Raises BadCondition, HistoryMissing.
    """
    import duckdb  # noqa: PLC0415 - an extra

    if ";" in where:
        raise BadCondition("a condition has no semicolon")
    store = Store(folder)
    values = [since, until, _TYPES[kind]]
    scan = store.scan(TABLES[kind], span(since, until))
    if scan is None:
        return []
    store.rows(_LOADED.format(t=scan), values)
    if kind == "enqueued" and (runs := store.scan("raw_metrics", span(since, _FOR_EVER))):
        store.rows(_RAN.format(t=runs), [])
    try:
        return [PastJob(*row) for row in store.sealed(_CHOSEN.replace("{where}", where))]
    except duckdb.Error as error:
        raise BadCondition(str(error).partition("\n")[0]) from None
