"""The questions in SQL. `{t}` is the table (`pieces.source`, or a raw one), `{kind}` run or wait."""

from __future__ import annotations

_MINE = " WHERE ($1::VARCHAR IS NULL OR class = $1) AND ($2::VARCHAR IS NULL OR queue = $2)"
FIGURES = {
    **dict.fromkeys(("count", "failed", "retried", "run_us", "wait_us"), "sum"),
    **dict.fromkeys(("run_max_us", "wait_max_us"), "max"),
    "run_min_us": "min",
}
"""Columns of tables of sums that a point is made of, and how they add up."""
_SUMS = " " + ", ".join(f"{how}({name})" for name, how in FIGURES.items())

ROWS = "SELECT count(*) FROM {t}"
SERIES = "SELECT epoch(begins)," + _SUMS + " FROM {t}" + _MINE + " GROUP BY 1 ORDER BY 1"
HOURS = "SELECT hour, " + ", ".join(FIGURES) + " FROM {t}"
CLASSES = (
    "SELECT class, queue,"
    + _SUMS
    + ", sum(run_n), sum(wait_n) FROM {t}"
    + _MINE
    + " GROUP BY 1, 2 ORDER BY sum(run_us) DESC, 1, 2"
)
EXTREMES = "SELECT min({kind}_min_us), max({kind}_max_us) FROM {t}" + _MINE
CLASS_AND_QUEUE = "coalesce(class, '') || chr(10) || coalesce(queue, '')"
HISTOGRAMS = "SELECT {key} AS key, {kind}_histogram AS histogram FROM {t}" + _MINE
TOP_ERRORS = (
    "SELECT class, queue, error_class, fingerprint, sum(count)::BIGINT AS n, sum(dead)::BIGINT,"
    " epoch(max(last)), arg_max(jid, last), arg_max(error_message, last) FROM {t}" + _MINE + " GROUP BY 1, 2, 3, 4"
    " ORDER BY n DESC, fingerprint, class, queue LIMIT $3"
)

VERSIONS = (
    "SELECT class, code_version, epoch(min(begins)), sum(count), sum(failed) FROM {t}"
    " WHERE class IS NOT NULL AND code_version IS NOT NULL GROUP BY 1, 2"
)
VERSION_BUCKETS = (
    "SELECT class, code_version, b.bucket, sum(b.n), sum(b.us)"
    " FROM (SELECT class, code_version, unnest(run_histogram) AS b FROM {t})"
    " WHERE class IS NOT NULL AND code_version IS NOT NULL GROUP BY 1, 2, 3"
)
FAILED_HOURS = (
    "SELECT class, error_class, fingerprint, list(DISTINCT epoch(begins)) FROM {t} GROUP BY 1, 2, 3"
    " ORDER BY sum(count) DESC, 3, 1, 2 LIMIT $1"
)

JID_HASH = "(md5_number_lower({0}) >> 24)::BIGINT"
"""40 bits: a stranger's day may be read in vain, once in a lifetime."""
DAYS_OF_JOB = "SELECT DISTINCT day FROM {t} WHERE hash = " + JID_HASH.format("$1::VARCHAR")

_OF_JOB = " FROM {t} WHERE jid = $1 AND bad IS NULL"
RUN_DETAILS = ("class", "queue", "run_ms", "wait_ms", "attempt", "worker", "error_class", "code_version")
RUNS = (
    'SELECT epoch("at"), status, class, queue, run_us / 1000, wait_us / 1000, attempt, worker, error_class,'
    " code_version" + _OF_JOB
)
ENTRY_DETAILS = ("class", "queue", "due", "retry_count", "error_class", "error_message", "how", "worker")
ENTRIES = (
    'SELECT epoch("at"), type, class, queue, epoch(due), retry_count, error_class, error_message, how, worker' + _OF_JOB
)
EVENTS = 'SELECT epoch("at"), type, job' + _OF_JOB
ENQUEUED = 'SELECT type, epoch("at"), class, queue' + _OF_JOB


def piece(scan: str, unit: str, since: float, until: float, more: str) -> str:
    """The rows of a table of sums whose `unit` begins in a span, as `begins`; `more` columns."""
    mine = f"{unit} >= to_timestamp({since!r}) AND {unit} < to_timestamp({until!r})"
    return f"SELECT * RENAME ({unit} AS begins){more} FROM {scan} WHERE {mine}"
