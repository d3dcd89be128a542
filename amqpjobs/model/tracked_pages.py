"""All tracked jobs written into their stream again, as pages: what a reader begins with when the log's head is gone,
and what is brought over when the stream was deleted.

A set of pages is the whole state as it was before the offset `upto`; whoever loads it goes on from there. To a reader
that read everything it says nothing new. In a stream made anew the pages of the earlier life count (`restore`), under
the first leader's term, until that stream is `sealed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amqpjobs.model import text, values
from amqpjobs.model.lifecycle import State
from amqpjobs.model.pending import Claim
from amqpjobs.model.tracked import Flags, Policy, RunAt, Stand, Store, Tracked, Verdict, Word

_NUMBERS = ("created_at", "updated_at", "due", "started_at", "ended_at", "beat_at", "progress")
_COUNTS = ("id", "priority", "place", "attempt", "retried", "stalled")
_TEXTS = ("queue", "key", "type", "token", "worker", "error")


def write_begin(of: str, upto: int, stand: Stand, *, restore: bool) -> bytes:
    """The first entry of a set of pages."""
    head = {"type": "pages", "of": of, "upto": upto, "restore": restore}
    return text.dump(head | {"epoch": stand.epoch, "term": stand.term, "base": stand.base, "log_time": stand.log_time})


def write_end(of: str, at: float) -> bytes:
    """The last entry of a set of pages."""
    return text.dump({"type": "pages_end", "of": of, "at": at})


def write_queue(of: str, name: str, policy: Policy, *, restore: bool) -> bytes:
    """A queue."""
    return _page(of, restore, {"queue": name, "settings": list(policy)})


def write_known(
    of: str, sources: Sequence[tuple[str, int]], verdicts: Sequence[tuple[str, Verdict, float]], *, restore: bool
) -> bytes:
    """The last numbers of appenders, and verdicts."""
    judged = [[uuid, verdict.word, verdict.job, at] for uuid, verdict, at in verdicts]
    return _page(of, restore, {"sources": [list(each) for each in sources], "verdicts": judged})


def write_job(of: str, job: Tracked, lines: Sequence[tuple[float, str]], *, restore: bool) -> bytes:
    """A job and its log."""
    found: dict[str, Any] = {name: getattr(job, name) for name in (*_COUNTS, *_NUMBERS, *_TEXTS, "state", "outcome")}
    found |= {"policy": list(job.policy), "tags": list(job.tags), "lines": [list(line) for line in lines]}
    found |= {"flags": None if job.flags is None else list(job.flags)}
    found |= {"jid": job.jid, "amqp": job.amqp, "offered": job.offered}
    payload = {"data": text.Verbatim(job.data), "output": text.Verbatim(job.output)}
    return _page(of, restore, {"job": found, **payload})


def _page(of: str, restore: bool, more: Mapping[str, Any]) -> bytes:
    return text.dump({"type": "page", "of": of, "restore": restore, **more})


def load(store: Store, value: Mapping[str, Any], raw: bytes) -> None:
    """Take in a page; what is there already stays. What is not well formed is nothing."""
    try:
        if "job" in value:
            _load_job(store, value["job"], raw)
        elif "queue" in value:
            if store.queue(values.text(value["queue"])) is None:
                store.keep_queue(value["queue"], _policy(value["settings"]))
        else:
            _load_known(store, value)
    except (KeyError, TypeError, ValueError):
        return


def begun(value: Mapping[str, Any]) -> tuple[str, int, Stand] | None:
    """What the first entry of a set of pages says: its name, `upto`, and what was known of the stream."""
    try:
        term = value.get("term")
        stand = Stand(
            epoch=None if value.get("epoch") is None else values.text(value["epoch"]),
            term=None if term is None else Claim(values.whole(term[0]), values.text(term[1])),
            base=values.whole(value["base"]), sealed=True, log_time=values.number(value["log_time"]),
        )  # fmt: skip
        return values.text(value["of"]), values.whole(value["upto"]), stand
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _load_job(store: Store, value: Mapping[str, Any], raw: bytes) -> None:
    if store.get(values.whole(value["id"])) is not None:
        return
    flags, offered = value["flags"], value.get("offered", -1)
    named: dict[str, Any] = {name: _any(value[name]) for name in _NUMBERS}
    named |= {name: int(value[name]) for name in _COUNTS} | {name: values.line(value[name]) for name in _TEXTS}
    job = Tracked(
        state=State(value["state"]), outcome=None if value["outcome"] is None else State(value["outcome"]),
        policy=_policy(value["policy"]), tags=tuple(map(values.line, value["tags"])),
        flags=None if flags is None else Flags(bool(flags[0]), RunAt(flags[1]), bool(flags[2]), bool(flags[3])),
        jid=values.line(value.get("jid", "")), amqp=value.get("amqp") is True, offered=int(offered),
        data=text.member(raw, "data") or b"null", output=text.member(raw, "output") or b"null", **named,
    )  # fmt: skip
    lines = [(values.number(at), values.line(line)) for at, line in value["lines"]]
    store.add(job)
    for at, line in lines:
        store.add_line(job.id, at, line)


def _load_known(store: Store, value: Mapping[str, Any]) -> None:
    for source, seq in value["sources"]:
        if values.whole(seq) > store.last_seq(values.text(source)):
            store.keep_seq(source, seq, 0)
    for uuid, word, job, at in value["verdicts"]:
        if store.verdict(values.text(uuid)) is None:
            store.keep_verdict(uuid, Verdict(Word(word), None if job is None else values.whole(job)), values.number(at))


def _any(value: Any) -> float | None:
    return None if value is None else values.number(value)


def _policy(kept: Sequence[Any]) -> Policy:
    found = Policy(*kept)
    return found._replace(retry_delays=tuple(map(values.number, found.retry_delays)))
