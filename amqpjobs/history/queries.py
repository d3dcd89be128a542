"""The questions in SQL. `{t}` is the table's files, `{time}` its column of time, `{kind}` run or wait."""

from __future__ import annotations

_MINE = (
    " WHERE {time} >= to_timestamp($1) AND {time} < to_timestamp($2)"
    " AND ($3::VARCHAR IS NULL OR class = $3) AND ($4::VARCHAR IS NULL OR queue = $4)"
)
_SUMS = (
    " sum(count), sum(failed), sum(retried), sum(run_n), sum(run_us), max(run_max_us), sum(wait_n), sum(wait_us),"
    " max(wait_max_us), min(run_min_us)"
)
_BUCKET = " b.bucket, sum(b.n), sum(b.us) FROM"

SERIES = "SELECT epoch({time})," + _SUMS + " FROM {t}" + _MINE + " GROUP BY 1"
SERIES_BUCKETS = (
    "SELECT begins,"
    + _BUCKET
    + " (SELECT epoch({time}) AS begins, unnest(run_histogram) AS b FROM {t}"
    + _MINE
    + ") GROUP BY 1, 2"
)
BUCKETS = "SELECT" + _BUCKET + " (SELECT unnest({kind}_histogram) AS b FROM {t}" + _MINE + ") GROUP BY 1"
EXTREMES = "SELECT min({kind}_min_us), max({kind}_max_us) FROM {t}" + _MINE
CLASSES = "SELECT class, queue," + _SUMS + " FROM {t}" + _MINE + " GROUP BY 1, 2 ORDER BY sum(run_us) DESC, 1, 2"
CLASS_BUCKETS = (
    "SELECT class, queue," + _BUCKET + " (SELECT class, queue, unnest(run_histogram) AS b FROM {t}" + _MINE + ")"
    " GROUP BY 1, 2, 3"
)
TOP_ERRORS = (
    "SELECT class, queue, error_class, fingerprint, sum(count)::BIGINT AS n, sum(dead)::BIGINT, epoch(max(hour)),"
    " arg_max(jid, hour), arg_max(error_message, hour) FROM {t}" + _MINE + " GROUP BY 1, 2, 3, 4"
    " ORDER BY n DESC, fingerprint, class, queue LIMIT $5"
)

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
