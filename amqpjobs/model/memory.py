"""A fold's state in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from amqpjobs.model.pending import Claim, Facts, Pending, Source, due_at
from amqpjobs.model.position import Position
from amqpjobs.model.words import Verdict


class MemoryStore:
    """The plain store: what SQLite must agree with."""

    def __init__(self) -> None:
        self._facts = Facts()
        self._seqs: dict[str, Source] = {}
        self._voids: set[Position] = set()
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
        return self._seqs[source].seq if source in self._seqs else 0

    def keep_seq(self, source: str, seq: int, offset: int) -> None:
        """Remember it."""
        self._seqs[source] = Source(source, seq, offset)

    def sources(self, limit: int) -> list[Source]:
        """Those that appended last, the latest first."""
        return sorted(self._seqs.values(), key=lambda each: (-each.offset, each.source))[:limit]

    def low(self) -> Position | None:
        """The least position of a pending entry."""
        return min((entry.pos for entry in self._entries.values()), default=None)

    def is_void(self, pos: Position) -> bool:
        """Whether what stands there has no effect."""
        return pos in self._voids

    def keep_void(self, pos: Position) -> None:
        """Remember that it has none."""
        self._voids.add(pos)

    def voids(self) -> list[Position]:
        """All that are remembered, in order."""
        return sorted(self._voids)

    def forget_voids(self, before: int) -> None:
        """Drop those of smaller offsets."""
        self._voids = {pos for pos in self._voids if pos.offset >= before}

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

    def claim(self, ids: Iterable[str], holder: Claim, until: float | None = None) -> None:
        """Claim those that are there, unclaimed, and due at `until`, unless that is None."""
        for id_ in ids:
            entry = self._entries.get(id_)
            if entry is not None and entry.claim is None and due_at(entry, until):
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

    def judged(self, limit: int) -> list[tuple[str, float]]:
        """The commands whose verdicts are kept, the latest first."""
        kept = [(uuid, at) for uuid, (_, at) in self._verdicts.items()]
        return sorted(kept, key=lambda each: (-each[1], each[0]))[:limit]

    def entries(self) -> dict[str, Pending]:
        """All that is pending, by identity."""
        return dict(self._entries)
