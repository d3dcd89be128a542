"""The SQL of `conservation`: small tables of what began and what ended, then the questions."""

from __future__ import annotations

_ENTRIES = {
    "type": "VARCHAR",
    "how": "VARCHAR",
    "entry": "VARCHAR",
    "epoch": "INT",
    '"offset"': "BIGINT",
    "item": "INT",
}
_ALL = {"jid": "VARCHAR", "class": "VARCHAR", "queue": "VARCHAR", "bad": "VARCHAR", '"at"': "TIMESTAMPTZ"}
COLUMNS: dict[str, dict[str, str]] = {
    "raw_enqueued": {**_ALL, "type": "VARCHAR"},
    "raw_metrics": {**_ALL, "status": "VARCHAR", "run_us": "BIGINT", "wait_us": "BIGINT"},
    **dict.fromkeys(("raw_scheduled", "raw_retries", "raw_dead"), _ALL | _ENTRIES),
}
"""What is needed of each table."""


def loaded(name: str, scan: str | None) -> str:
    """Make a table of this name, of what is scanned or empty."""
    columns = COLUMNS[name]
    if scan is None:
        return f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns.items())})"
    return f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {scan}"


_SETTLED = """, settled_{0} AS (
    SELECT epoch, TRY_CAST(split_part(entry, ':', 1) AS BIGINT) AS "offset",
        coalesce(TRY_CAST(split_part(entry, ':', 2) AS INT), 0) AS item, max(how) AS settled
    FROM raw_{0} WHERE type = 'settled' GROUP BY 1, 2, 3
), {0} AS (
    SELECT jid, count(*) AS entries, count(*) FILTER (settled IS NULL) AS pending,
        count(*) FILTER (settled = 'enqueued') AS released,
        count(*) FILTER (settled IN ('expired', 'dropped')) AS removed
    FROM raw_{0} LEFT JOIN settled_{0} USING (epoch, "offset", item)
    WHERE bad IS NULL AND type IN ('scheduled_job', 'retry', 'dead_job') GROUP BY 1
)"""
"""Of each job its entries in a delayed set, and what the set's leader did with them."""

BORN = """CREATE TABLE born AS
SELECT jid, arg_min(class, "at") AS class, arg_min(queue, "at") AS queue, min("at") AS "at" FROM (
    SELECT jid, class, queue, epoch("at") AS "at" FROM raw_enqueued WHERE type = 'enqueued'
    UNION ALL
    SELECT jid, class, queue, epoch("at") FROM raw_scheduled WHERE bad IS NULL AND type = 'scheduled_job'
) WHERE jid IS NOT NULL GROUP BY 1"""

JOBS = (
    """CREATE TABLE jobs AS
WITH runs AS (
    SELECT jid, count(*) FILTER (status <> 'failed') AS finished, count(*) FILTER (status = 'failed') AS failures
    FROM raw_metrics WHERE bad IS NULL GROUP BY 1
), ordered AS (
    SELECT jid, count(*) FILTER (how = 'delete') > count(*) FILTER (how = 'restore') AS deleted
    FROM (SELECT jid, type, how FROM raw_scheduled UNION ALL SELECT jid, type, how FROM raw_retries)
    WHERE type = 'command' GROUP BY 1
)"""
    + "".join(_SETTLED.format(name) for name in ("scheduled", "retries", "dead"))
    + """, counted AS (
    SELECT born.*, coalesce(finished, 0) + coalesce(dead.entries, 0) - coalesce(dead.released, 0)
            + greatest(0, coalesce(failures, 0) - coalesce(retries.entries, 0) - coalesce(dead.entries, 0)) AS ends,
        coalesce(ordered.deleted, false)
            OR coalesce(scheduled.removed, 0) + coalesce(retries.removed, 0) > 0 AS removed,
        CASE WHEN retries.pending > 0 THEN 'retries' WHEN scheduled.pending > 0 THEN 'scheduled_jobs' END AS place
    FROM born LEFT JOIN runs USING (jid) LEFT JOIN ordered USING (jid) LEFT JOIN scheduled USING (jid)
        LEFT JOIN retries USING (jid) LEFT JOIN dead USING (jid)
    WHERE born."at" >= $1 AND born."at" < $2
)
SELECT *, ends <= 0 AND removed AS deleted FROM counted"""
)
ENDED = "SELECT count(*), count(*) FILTER (ends = 1 OR deleted), count(*) FILTER (deleted) FROM jobs"
_CASE = 'jid, class, queue, "at"'
DOUBLED = f"SELECT {_CASE}, ends FROM jobs WHERE ends > 1 ORDER BY 4, 1"
_OPEN = "FROM jobs WHERE ends <= 0 AND NOT deleted AND place IS"
WAITING = f"SELECT {_CASE}, place {_OPEN} NOT NULL ORDER BY 4, 1"
MISSING = f"SELECT {_CASE} {_OPEN} NULL ORDER BY 4, 1"

LOG_SINCE = "SELECT epoch(min(\"at\")) FROM raw_enqueued WHERE type = 'enqueued'"
STRANGERS = """CREATE TABLE strangers AS
SELECT jid, any_value(class) AS class, any_value(queue) AS queue, min("at") AS "at", count(*) AS ends,
    min(began) AS began
FROM (
    SELECT jid, class, queue, epoch("at") AS "at",
        epoch("at") - (coalesce(run_us, 0) + coalesce(wait_us, 0)) / 1e6 AS began
    FROM raw_metrics WHERE bad IS NULL AND status <> 'failed'
    UNION ALL
    SELECT jid, class, queue, epoch("at"), epoch("at") FROM raw_dead WHERE bad IS NULL AND type = 'dead_job'
) ANTI JOIN born USING (jid)
WHERE jid IS NOT NULL AND "at" >= $1 AND "at" < $2 GROUP BY 1"""
"""Jobs that ended in the span without a beginning."""
ORPHANED = f"SELECT {_CASE}, ends FROM strangers WHERE began >= $1 ORDER BY 4, 1"
UNLOGGED = "SELECT count(*) FROM strangers WHERE $1::DOUBLE IS NULL OR began < $1"
APART = """SELECT count(*) FILTER (bad IS NULL), count(*) FILTER (bad IS NOT NULL) FROM (
    SELECT jid, bad, "at" FROM raw_enqueued WHERE type = 'enqueued' OR bad IS NOT NULL
    UNION ALL SELECT jid, bad, "at" FROM raw_metrics
    UNION ALL SELECT jid, bad, "at" FROM raw_scheduled WHERE type = 'scheduled_job' OR bad IS NOT NULL
    UNION ALL SELECT jid, bad, "at" FROM raw_retries WHERE type = 'retry' OR bad IS NOT NULL
    UNION ALL SELECT jid, bad, "at" FROM raw_dead WHERE type = 'dead_job' OR bad IS NOT NULL
) WHERE (jid IS NULL OR bad IS NOT NULL) AND coalesce(epoch("at"), $1) >= $1 AND coalesce(epoch("at"), $1) < $2"""
