"""Checkpoints of a delayed set: what a reader must know to begin in the middle of the stream.

A checkpoint is a pure function of the log before `upto` (rule 20), so anybody's is as good as the leader's. It holds
no entries: those that are pending all stand at or after `low`, because the leader carries them forward. Whoever begins
with it reads from there, leaves out what is `void`, and knows at `upto` what a reader of the whole log knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amqpjobs.model import names, values
from amqpjobs.model.pending import Claim, Facts, Source, Store, Trim
from amqpjobs.model.position import WHOLE, Position
from amqpjobs.model.trail import Step

MOST_SOURCES = 5000
"""A checkpoint names this many of those that appended last. An append of an older one, sent again after so many others
wrote, would count twice for who begins here: far longer than anybody tries."""
MOST_JUDGED = 5000
"""The same for commands that were given twice under one uuid."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`digest` is that of the message before `upto`, and `trail` leads there: they tell this stream from another."""

    stream: str
    low: int
    upto: int
    digest: str
    facts: Facts
    sources: tuple[Source, ...]
    judged: tuple[tuple[str, float], ...]
    ticks: tuple[tuple[str, int], ...]
    void: tuple[Position, ...]
    trail: tuple[Step, ...] = ()


def take(stream: str, store: Store, upto: int, digest: str, trail: tuple[Step, ...] = ()) -> Checkpoint | None:
    """The checkpoint at `upto`, the offset after the last one folded.

    None where there can be none: the incarnation is not sealed (rule 25), or the fold has not passed the `upto` that it
    began with.
    """
    facts = store.facts()
    if not facts.sealed or upto < facts.upto:
        return None
    least = store.low()
    low = upto if least is None else least.offset
    store.forget_voids(low)
    return Checkpoint(
        stream=stream,
        low=low,
        upto=upto,
        digest=digest,
        facts=facts._replace(start=None, upto=upto),
        sources=tuple(store.sources(MOST_SOURCES)),
        judged=tuple(store.judged(MOST_JUDGED)),
        ticks=tuple(sorted(store.ticks().items())),
        void=tuple(store.voids()),
        trail=trail,
    )


def adopt(checkpoint: Checkpoint, store: Store) -> None:
    """Let an empty store begin with it: what is folded next is the message at `low`, or the first that is left."""
    store.keep_facts(checkpoint.facts)
    for source in checkpoint.sources:
        store.keep_seq(*source)
    for uuid, at in checkpoint.judged:
        store.keep_verdicts(uuid, [], at)
    for name, t in checkpoint.ticks:
        store.keep_tick(name, t)
    for pos in checkpoint.void:
        store.keep_void(pos)


def furthest(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """The order in which to try them: the incarnation heard of last first, in it the one that reaches furthest.

    Of those that reach as far the one heard of last: the others may tell of a tail that the broker lost, and of what
    took its place retention may have left nothing that could disprove them.
    """
    by_epoch: dict[str | None, list[Checkpoint]] = {}
    for each in checkpoints:
        by_epoch[each.facts.epoch] = [each, *by_epoch.pop(each.facts.epoch, [])]
    return [
        each
        for group in reversed(by_epoch.values())
        for each in sorted(group, key=lambda each: each.upto, reverse=True)
    ]


def write_checkpoint(checkpoint: Checkpoint, *, by: str, at: float) -> dict[str, Any]:
    """Its entry in the stream `checkpoints`."""
    facts = checkpoint.facts
    return {
        "type": "checkpoint",
        "stream": checkpoint.stream,
        "epoch": facts.epoch,
        "low": checkpoint.low,
        "upto": checkpoint.upto,
        "digest": checkpoint.digest,
        "term": facts.term,
        "leader": facts.leader,
        "log_time": facts.log_time,
        "trimmed": facts.trimmed,
        "dropped": facts.dropped,
        "sources": checkpoint.sources,
        "judged": checkpoint.judged,
        "ticks": checkpoint.ticks,
        "void": [[pos.offset] if pos.item == WHOLE else list(pos) for pos in checkpoint.void],
        "trail": checkpoint.trail,
        "by": by,
        "at": at,
    }


def read_checkpoint(value: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint that an entry is; None where it is none or is not well formed."""
    try:
        return _read(value) if value["type"] == "checkpoint" and value["stream"] in names.DELAYED else None
    except (KeyError, TypeError, ValueError):
        return None


def _read(value: Mapping[str, Any]) -> Checkpoint:
    upto, trimmed = values.whole(value["upto"]), value.get("trimmed")
    n, source = value["term"]
    facts = Facts(
        epoch=values.text(value["epoch"]),
        term=Claim(values.whole(n), values.text(source)),
        leader=values.line(value["leader"]),
        log_time=values.number(value["log_time"]),
        upto=upto,
        sealed=True,
        trimmed=None if trimmed is None else _trim(*trimmed),
        dropped=values.whole(value["dropped"]),
    )
    return Checkpoint(
        stream=value["stream"],
        low=values.whole(value["low"]),
        upto=upto,
        digest=values.text(value["digest"]),
        facts=facts,
        sources=tuple(Source(values.text(s), values.whole(q), values.whole(o)) for s, q, o in value["sources"]),
        judged=tuple((values.text(uuid), values.number(at)) for uuid, at in value["judged"]),
        ticks=tuple((values.text(name), values.whole(t)) for name, t in value["ticks"]),
        void=tuple(_position(*map(values.whole, each)) for each in value["void"]),
        trail=tuple(Step(values.whole(offset), values.whole(crc)) for offset, crc in value.get("trail", ())),
    )


def _trim(first: object, entries: object, at: object) -> Trim:
    return Trim(values.whole(first), values.whole(entries), values.number(at))


def _position(offset: int, item: int = WHOLE) -> Position:
    return Position(offset, item)
