"""One job's life as far as this process knows it: where it is now, and what happened to it, in order of time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from amqpjobs.model import names, text
from amqpjobs.model.indented import indented
from amqpjobs.model.tally import Outcome
from amqpjobs.streams.audit_store import Touch
from amqpjobs.streams.rows import Row
from amqpjobs.web import wording

LONGEST = 8000
"""Characters shown of arguments, an error or a backtrace; the whole is one click away."""
PLACES = {names.SCHEDULED: "scheduled-jobs", names.RETRIES: "retries", names.DEAD: "dead-jobs"}
_STATES = {names.SCHEDULED: "scheduled", names.RETRIES: "waits for its next try", names.DEAD: "dead"}


class Event(NamedTuple):
    """Something that happened to the job. `at` in seconds since 1970, None when nobody told."""

    at: float | None
    what: str
    detail: str = ""
    wrong: bool = False


class Copy(NamedTuple):
    """One entry of the job that waits. Texts are clipped; `clipped` says whether anything was."""

    place: str
    entry: str
    state: str
    cls: str
    queue: str
    due: float | None
    arguments: str
    error_class: str
    error_message: str
    backtrace: str
    tags: Sequence[str]
    retry_count: int
    size: int
    clipped: bool
    job: dict[str, Any]


def copy_of(stream: str, row: Row) -> Copy:
    """An entry for the page."""
    whole = row.size == len(row.raw)
    entry = _object(row.raw) if whole else {}
    job = entry.get("job") if isinstance(entry.get("job"), dict) else {}
    arguments = indented(_arguments(row.raw)) if whole else row.raw.decode("utf-8", "replace")
    backtrace = entry.get("backtrace") if isinstance(entry.get("backtrace"), str) else ""
    shown = [each[:LONGEST] for each in (arguments, row.error_message, backtrace or "")]
    clipped = not whole or any(len(each) > LONGEST for each in (arguments, row.error_message, backtrace or ""))
    return Copy(
        PLACES[stream], row.entry, "leaving" if row.claimed else _STATES[stream], row.cls, row.queue,
        row.at if stream == names.DEAD else row.due, shown[0], row.error_class, shown[1], shown[2], row.tags,
        row.retry_count, row.size, clipped, {**(job or {}), "failed_at": entry.get("failed_at")},
    )  # fmt: skip


def events(copies: Iterable[Copy], runs: Iterable[Outcome], touches: Iterable[Touch]) -> list[Event]:
    """All that happened, the earliest first; what has no time comes last."""
    found = [*_sent(copies), *(each for run in runs for each in _run(run)), *map(_touch, touches)]
    distinct = list(dict.fromkeys(found))
    return sorted(distinct, key=lambda event: (event.at is None, event.at or 0.0))


def _sent(copies: Iterable[Copy]) -> Iterable[Event]:
    for copy in copies:
        created, enqueued = _instant(copy.job.get("created_at")), _instant(copy.job.get("enqueued_at"))
        if created is not None:
            yield Event(created, "sent")
        if enqueued is not None and (created is None or enqueued - created > 1):
            yield Event(enqueued, "entered its queue", copy.queue)
        failure = ": ".join(filter(None, (copy.error_class, copy.error_message[:500])))
        match copy.place:
            case "scheduled-jobs":
                yield Event(copy.due, "is due")
            case "retries":
                yield Event(_instant(copy.job["failed_at"]), "failed", failure, wrong=True)
                yield Event(copy.due, "is due for its next try", f"retry {copy.retry_count}")
            case _:
                yield Event(copy.due, "died", failure, wrong=True)


def _run(run: Outcome) -> Iterable[Event]:
    """A start, where it can be told, and an end. What never ran (expired, cancelled) only ended."""
    attempt = f"attempt {run.attempt}" if run.attempt else ""
    if run.run_us is not None and run.status in ("success", "failed"):
        waited = "" if run.wait_us is None else f"after {wording.duration(run.wait_us / 1e6)} in {run.queue}"
        yield Event(run.at - run.run_us / 1e6, "began to run", ", ".join(filter(None, (attempt, run.worker, waited))))
    took = "" if run.run_us is None else f"after {wording.duration(run.run_us / 1e6)}"
    version = f"version {run.version}" if run.version else ""
    failed = run.status == "failed"
    what = {"success": "succeeded", "failed": "run failed"}.get(run.status, run.status)
    detail = ", ".join(filter(None, (attempt, run.error_class if failed else "", took, run.worker, version)))
    yield Event(run.at, what, detail, wrong=failed)


def _touch(touch: Touch) -> Event:
    verdict = "" if touch.verdict in (None, "done") else f": {str(touch.verdict).replace('_', ' ')}"
    return Event(touch.at, f"{touch.op} was ordered{verdict}", f"by {touch.by or 'nobody'} ({touch.via})")


def _instant(value: Any) -> float | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fine:
        return None
    return float(value) / 1000 if value >= 1e11 else float(value)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = text.parse(raw, depth=text.ENTRY_DEPTH)
    except text.NotJson:
        return {}
    value = text.strict(found)
    return value if isinstance(value, dict) else {}


def _arguments(raw: bytes) -> str:
    """The bytes of the arguments as they came; of what has none, all of it."""
    try:
        job = text.member(raw, "job") or raw
        found = text.member(job, "args") or job
    except text.NotJson:
        found = raw
    return found.decode("utf-8", "replace")
