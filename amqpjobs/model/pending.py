"""What waits in a delayed set, and the store that its fold works on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from amqpjobs.model.protocol import Position, Verdict


class Claim(NamedTuple):
    """A leader's claim: the term's number, and the `from` of the leader that held it."""

    n: int
    source: str


class Summary(NamedTuple):
    """What lists show of an entry without reading its body. `at` is when it failed, died or was enqueued."""

    cls: str
    queue: str
    retry_count: int
    error_class: str
    error_message: str
    at: float | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """One entry that is not over.

    `id` is for life; `pos` and `rev` move when it is changed. `due` is in seconds since 1970, None: it waits for a
    person. `bury`: its goal is the dead set, not its queue. `key` tells the same job in a second message (empty where
    nothing replaces). `fault` is the error class and message that a burial records, where there is one.
    """

    id: str
    pos: Position
    rev: Position
    jid: str
    due: float | None
    raw: bytes
    summary: Summary
    key: bytes = b""
    bury: bool = False
    fault: tuple[str, str] | None = None
    claim: Claim | None = None


class Facts(NamedTuple):
    """What a fold knows of its stream as a whole.

    `leader` names the process of the current term; `log_time` is the greatest `at` of a command so far. `headless`:
    the first message that this fold saw was not the stream's first, retention had taken its head. `dropped` entries
    were taken out because the set was full or they were too old.
    """

    epoch: str | None = None
    term: Claim | None = None
    leader: str = ""
    log_time: float = 0.0
    headless: bool | None = None
    dropped: int = 0


class Store(Protocol):
    """Where a fold keeps its state: a dict in tests, SQLite in a process. No method has an opinion of its own."""

    def facts(self) -> Facts:
        """Epoch, term and the log's time."""
        ...

    def keep_facts(self, facts: Facts) -> None:
        """Replace them."""
        ...

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        ...

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it, and at which offset."""
        ...

    def get(self, id_: str) -> Pending | None:
        """The pending entry of that identity."""
        ...

    def put(self, entry: Pending) -> None:
        """Insert or replace by identity."""
        ...

    def change(self, entry: Pending) -> None:
        """Update position, revision, due time, goal, fault and claim of an entry that is there; its body stays."""
        ...

    def remove(self, id_: str) -> None:
        """Forget it; nothing when it is not there."""
        ...

    def claim(self, ids: Iterable[str], holder: Claim) -> None:
        """Claim those that are there and unclaimed."""
        ...

    def end(self, ids: Iterable[str]) -> None:
        """Remove those that are there and claimed."""
        ...

    def of_jid(self, jid: str) -> list[Pending]:
        """All pending entries of a jid, oldest position first."""
        ...

    def seen(self, id_: str) -> bool:
        """Whether an earlier incarnation's entry was appended again already."""
        ...

    def keep_seen(self, id_: str) -> None:
        """Remember that it was."""
        ...

    def last_tick(self, name: str) -> int | None:
        """The last tick of a recurring job, in seconds since 1970; None before the first."""
        ...

    def keep_tick(self, name: str, t: int) -> None:
        """Remember it."""
        ...

    def verdicts(self, uuid: str) -> list[Verdict] | None:
        """What was said of a command, a verdict a target; None when it was never judged."""
        ...

    def keep_verdicts(self, uuid: str, verdicts: list[Verdict], at: float) -> None:
        """Remember it."""
        ...

    def forget_verdicts(self, before: float) -> None:
        """Drop verdicts of commands whose `at` is earlier."""
        ...


class MemoryStore:
    """The plain store: what SQLite must agree with."""

    def __init__(self) -> None:
        self._facts = Facts()
        self._seqs: dict[str, int] = {}
        self._entries: dict[str, Pending] = {}
        self._seen: set[str] = set()
        self._ticks: dict[str, int] = {}
        self._verdicts: dict[str, tuple[list[Verdict], float]] = {}

    def facts(self) -> Facts:
        """Epoch, term and the log's time."""
        return self._facts

    def keep_facts(self, facts: Facts) -> None:
        """Replace them."""
        self._facts = facts

    def last_seq(self, source: str) -> int:
        """The greatest sequence number folded from `source`; 0 for none."""
        return self._seqs.get(source, 0)

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self._seqs[source] = seq

    def get(self, id_: str) -> Pending | None:
        """The pending entry of that identity."""
        return self._entries.get(id_)

    def put(self, entry: Pending) -> None:
        """Insert or replace by identity."""
        self._entries[entry.id] = entry

    def change(self, entry: Pending) -> None:
        """Update what may change of an entry that is there."""
        self._entries[entry.id] = entry

    def remove(self, id_: str) -> None:
        """Forget it; nothing when it is not there."""
        self._entries.pop(id_, None)

    def claim(self, ids: Iterable[str], holder: Claim) -> None:
        """Claim those that are there and unclaimed."""
        for id_ in ids:
            entry = self._entries.get(id_)
            if entry is not None and entry.claim is None:
                self._entries[id_] = replace(entry, claim=holder)

    def end(self, ids: Iterable[str]) -> None:
        """Remove those that are there and claimed."""
        for id_ in ids:
            entry = self._entries.get(id_)
            if entry is not None and entry.claim is not None:
                del self._entries[id_]

    def of_jid(self, jid: str) -> list[Pending]:
        """All pending entries of a jid, oldest position first."""
        return sorted((e for e in self._entries.values() if e.jid == jid), key=lambda e: e.pos)

    def seen(self, id_: str) -> bool:
        """Whether an earlier incarnation's entry was appended again already."""
        return id_ in self._seen

    def keep_seen(self, id_: str) -> None:
        """Remember that it was."""
        self._seen.add(id_)

    def last_tick(self, name: str) -> int | None:
        """The last tick of a recurring job."""
        return self._ticks.get(name)

    def keep_tick(self, name: str, t: int) -> None:
        """Remember it."""
        self._ticks[name] = t

    def ticks(self) -> dict[str, int]:
        """The last tick of each recurring job."""
        return dict(self._ticks)

    def verdicts(self, uuid: str) -> list[Verdict] | None:
        """What was said of a command, a verdict a target."""
        kept = self._verdicts.get(uuid)
        return None if kept is None else kept[0]

    def keep_verdicts(self, uuid: str, verdicts: list[Verdict], at: float) -> None:
        """Remember it."""
        self._verdicts[uuid] = (verdicts, at)

    def forget_verdicts(self, before: float) -> None:
        """Drop verdicts of commands whose `at` is earlier."""
        self._verdicts = {uuid: kept for uuid, kept in self._verdicts.items() if kept[1] >= before}

    def entries(self) -> dict[str, Pending]:
        """All that is pending, by identity."""
        return dict(self._entries)
