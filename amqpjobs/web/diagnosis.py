"""What is wrong now, in words: what is the matter, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from amqpjobs.model import names
from amqpjobs.web import wording

if TYPE_CHECKING:
    from amqpjobs.web.status import Facts, QueueLine, Waiting

LATE = 5.0
"""Seconds after its due time at which a job that still waits is called late."""
BEHIND = 2.0
"""Seconds a view may lag before the page says so."""

PIPELINE_BEHIND = 60.0
"""Seconds for which the lake may lack what a stream holds before the page says so."""
PIPELINE_SILENT = 600.0
"""Seconds without a word of the pipeline after which it is taken for stopped: its longest round, with the upkeep."""

FULL = 0.4
"""The share of a stream's limit from which on what waits in it is too much: the leader warns of it too."""
TOLD = 7 * 86400.0
"""Seconds for which a loss is shown."""


class Finding(NamedTuple):
    """One thing that is wrong (a person is needed) or worth knowing (`note`).

    `at` is the instant that the text speaks of, when it does: the page shows it in the viewer's zone.
    """

    level: Literal["wrong", "note"]
    what: str
    advice: str = ""
    command: str = ""
    at: float | None = None


def findings(facts: Facts) -> Iterator[Finding]:
    """All there is to say, the gravest first."""
    yield from _broker(facts)
    yield from _lagging(facts)
    if facts.broker.up:
        yield from _scheduler(facts)
        yield from _workers(facts)
        yield from _silent(facts)
        yield from _pipeline(facts)
    yield from _room(facts)
    yield from _record(facts)
    for remark in facts.remarks:
        yield Finding("note", remark)


def _broker(facts: Facts) -> Iterator[Finding]:
    broker = facts.broker
    if not broker.up:
        yield Finding(
            "wrong",
            f"No connection to the broker at {broker.address}. What this page shows is from before.",
            f"{_sentence(broker.error or 'it has not answered yet')} Trying again every 2 s at the latest.",
            at=broker.since,
        )
    elif broker.blocked:
        yield Finding(
            "wrong",
            f"The broker takes no new messages: {broker.blocked}.",
            "A memory or disk alarm. Free some, or raise the broker's limit; publishers wait until then.",
        )


def _lagging(facts: Facts) -> Iterator[Finding]:
    for lag in facts.lags:
        if lag.seconds >= BEHIND:
            yield Finding(
                "wrong" if lag.seconds >= 60 else "note",
                f"This page is behind: {lag.stream} is still being read, for {wording.age(lag.seconds)} now.",
                "Figures from it are too low until then.",
            )


def _scheduler(facts: Facts) -> Iterator[Finding]:
    late = [
        (name, waiting, facts.at - waiting.next_due)
        for name, waiting in (("scheduled jobs", facts.scheduled), ("retries", facts.retries))
        if waiting is not None and waiting.next_due is not None and facts.at - waiting.next_due > LATE
    ]
    if facts.leader is False:
        pending = sum(_count(waiting) for waiting in (facts.scheduled, facts.retries))
        yield Finding(
            "wrong" if pending else "note",
            "No scheduler is running" + (f": {_jobs(pending)} will not leave when due." if pending else "."),
            "Start one:",
            "python -m amqpjobs.scheduler",
        )
        return
    for name, _, seconds in late:
        yield Finding(
            "wrong",
            f"Due {name} are not leaving: the oldest is {wording.age(seconds)} late.",
            "A scheduler leads, but it is behind or held up: its log says by what.",
        )


def _workers(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        if queue.paused and queue.ready:
            yield Finding(
                "note",
                f"Queue {queue.name} is paused: {_jobs(queue.ready)} in it.",
                "Resume it on its page, or:",
                f"amqpjobs resume {queue.name}",
            )
    deserted = [queue for queue in facts.queues if queue.ready and queue.consumers == 0 and not queue.paused]
    if deserted and not facts.processes:
        total = sum(queue.ready or 0 for queue in deserted)
        yield Finding(
            "wrong",
            f"No worker is running: {_jobs(total)} waiting in {_queues(deserted)}.",
            "Start one:",
            f"python -m amqpjobs.worker -A YOUR_MODULE {' '.join('-q ' + q.name for q in deserted[:4])}",
        )
        return
    for queue in deserted:
        yield Finding(
            "wrong",
            f"Queue {queue.name} has {_jobs(queue.ready or 0)} and no worker.",
            "Start one that takes it:",
            f"python -m amqpjobs.worker -A YOUR_MODULE -q {queue.name}",
        )


def _pipeline(facts: Facts) -> Iterator[Finding]:
    """Whether the lake falls behind; a pipeline that nobody uses has told nothing."""
    told = max((lag.at for lag in facts.lake), default=facts.at)
    if facts.at - told > PIPELINE_SILENT:
        yield Finding(
            "note",
            f"The pipeline has said nothing for {wording.age(facts.at - told)}: the lake holds what was before.",
            "Start it, unless it runs from time to time:",
            "python -m amqpjobs.pipeline run",
        )
        return
    for lag in facts.lake:
        if lag.messages and lag.since is not None and facts.at - lag.since > PIPELINE_BEHIND:
            yield Finding(
                "note",
                f"The pipeline is behind: {lag.messages:,} messages of {lag.stream} are not in the lake, the oldest for"
                f" {wording.age(facts.at - lag.since)}.",
                "Its log says how fast it reads.",
            )


def _silent(facts: Facts) -> Iterator[Finding]:
    for process in facts.processes:
        if process.state(facts.listened) == "stale":
            yield Finding(
                "note",
                f"No heartbeat from {process.beat.identity} for {wording.age(process.silent_for(facts.listened))}.",
                "It leaves this page after 60 s of silence.",
            )


def _room(facts: Facts) -> Iterator[Finding]:
    """What retention took of what waits, and what it will take."""
    for stream, waiting in (
        (names.SCHEDULED, facts.scheduled), (names.RETRIES, facts.retries), (names.DEAD, facts.dead)
    ):  # fmt: skip
        if waiting is None:
            continue
        if waiting.trim is not None and facts.at - waiting.trim.at < TOLD:
            yield Finding(
                "wrong",
                f"Retention took {_jobs(waiting.trim.entries)} of {stream} that still waited.",
                "They are lost unless their senders send them again. Raise the stream's limits.",
                at=waiting.trim.at,
            )
        if waiting.live_bytes > FULL * waiting.most_bytes > 0:
            yield Finding(
                "wrong",
                f"What waits takes {waiting.live_bytes / waiting.most_bytes:.0%} of what {stream} may hold.",
                "Beyond it the oldest are lost. Raise the limit, and `max-length-bytes` of the stream in the broker:",
                f"AMQPJOBS_STREAMS__{stream.upper()}__MAX_BYTES={2 * waiting.most_bytes}",
            )


def _record(facts: Facts) -> Iterator[Finding]:
    for stream in facts.lost:
        yield Finding("wrong", f"{stream} was trimmed before this dashboard had read it: what was there is not shown.")
    runs = facts.runs
    if runs is None:
        return
    if runs.gap_at is not None:
        yield Finding(
            "note",
            f"{names.METRICS} was trimmed before this dashboard had read it: counts are too low.",
            at=runs.gap_at,
        )
    if runs.renewed_at is not None:
        yield Finding("note", f"{names.METRICS} was made anew: counts begin with the new stream.", at=runs.renewed_at)
    if runs.unreadable:
        what = "1 entry of" if runs.unreadable == 1 else f"{wording.number(runs.unreadable)} entries of"
        yield Finding("note", f"{what} {names.METRICS} could not be read and are in no count.")


def _count(waiting: Waiting | None) -> int:
    """What has a due time; what never leaves by itself does not miss a scheduler."""
    return waiting.count if waiting is not None and waiting.next_due is not None else 0


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{wording.number(count)} jobs"


def _queues(queues: list[QueueLine]) -> str:
    shown = ", ".join(queue.name for queue in queues[:4])
    return shown if len(queues) <= 4 else f"{shown} and {len(queues) - 4} more"
