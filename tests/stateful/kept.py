"""The world of `world`, with retention: entries are carried forward, checkpoints published, the log's head trimmed,
its tail lost, and readers begin with nothing but a checkpoint."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from amqpjobs.model import control, copies, names
from amqpjobs.model.checkpoint import Checkpoint, furthest, read_checkpoint, take, write_checkpoint
from amqpjobs.model.trail import agrees, step
from tests.stateful.world import NOW, Reader, World


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


class KeptWorld(World):
    """`first` is the offset of the first message that retention left."""

    def __init__(self, candidates: int = 2) -> None:
        self.first = 0
        self.synced = 0
        """What is on the disk for good: retention takes what is hours old, a power cut what is seconds old."""
        self.checkpoints: list[bytes] = []
        self.carries = 0
        self.truncated = 0
        self.checked: tuple[int, ...] = ()
        super().__init__(candidates)

    # What the cleaner does.

    def carry(self, index: int, count: int) -> None:
        """The copies of the oldest entries are on their way, and may land at any time; one of them twice."""
        store = self.candidates[index].reader.store
        oldest = sorted((e for e in store.entries().values() if e.claim is None), key=lambda e: e.pos)[:count]
        if not oldest:
            return
        self.carries += 1
        entries = [control.write_carry(copies.carry(names.SCHEDULED, entry)) for entry in oldest]
        entries[0] |= {"from": f"cleaner {self.carries}", "seq": 1}
        self.late += [json.dumps(entries).encode()] * 2

    def checkpoint(self, index: int) -> None:
        """Whoever it is: a checkpoint is a function of the log."""
        reader = self.candidates[index].reader
        if not 0 < reader.next <= len(self.log) or reader.next < self.first:
            return
        found = take(names.SCHEDULED, reader.store, reader.next, digest(self.log[reader.next - 1]), reader.trail)
        if found is not None:
            self.checkpoints.append(json.dumps(write_checkpoint(found, by="test", at=NOW)).encode())

    # What the broker does.

    def usable(self) -> list[Checkpoint]:
        """The checkpoints of the stream as it is, whose log is whole from their `low` on; best first."""
        read = [read_checkpoint(json.loads(body)) for body in self.checkpoints]
        ordered = furthest(each for each in read if each is not None)
        return [each for each in ordered if self._fits(each, latest=ordered[0].facts.epoch)]

    def _fits(self, checkpoint: Checkpoint, latest: str | None) -> bool:
        last = checkpoint.upto - 1
        if checkpoint.low < self.first or last >= len(self.log):
            return False
        if last < self.first:  # what could prove it is gone: the incarnation heard of last is believed
            return checkpoint.facts.epoch == latest
        begin = max(self.first, checkpoint.trail[0].offset)
        there = [step(offset, self.log[offset]) for offset in range(begin, checkpoint.upto)]
        return digest(self.log[last]) == checkpoint.digest and agrees(checkpoint.trail, there)

    def trim(self, which: int) -> None:
        """Retention takes what is below the `low` of a confirmed checkpoint."""
        usable = self.usable()
        if usable:
            checkpoint = usable[which % len(usable)]
            self.first = max(self.first, checkpoint.low)
            self.synced = max(self.synced, checkpoint.upto)

    def truncate(self, count: int) -> None:
        """The broker loses the end of the log, confirmed as it was: a stream is not synced to the disk."""
        count = min(count, len(self.log) - self.synced)
        if count <= 0:
            return
        self.truncated += 1
        lost, self.log = self.log[-count:], self.log[:-count]
        self.excused |= {jid for body in lost for jid in _added(body)} - self._known()
        for index, who in enumerate(self.candidates):
            if who.reader.trail and who.reader.trail[-1].offset >= len(self.log):
                pending = list(who.reader.store.entries().values())
                if who.reader.next > len(self.log):  # else it only began with a checkpoint that reached beyond
                    who.old.append((who.reader.store.facts().epoch, pending, who.reader.store.ticks()))
                who.reader = self.cold()
            self.crash(index, cold=False)

    def _known(self) -> set[str]:
        known = {e.jid for c in self.candidates for e in c.reader.store.entries().values()}
        return known | {e.jid for c in self.candidates for _, page, _ in c.old for e in page}

    # What readers do.

    def read(self, index: int, count: int = 1) -> None:
        """One that retention overtook begins anew, with a checkpoint (rule 21)."""
        if self.candidates[index].reader.next < self.first:
            self.candidates[index].reader = self.cold()
            self.crash(index, cold=False)
        super().read(index, count)

    def cold(self) -> Reader:
        for checkpoint in self.usable():
            return Reader(checkpoint, self.first)
        assert self.first == 0, "the head is gone, and no checkpoint says what it held"
        return Reader(None, self.first)

    def make_anew(self) -> None:
        super().make_anew()
        self.first = self.synced = 0

    # What must hold.

    def check(self) -> None:
        if self.truncated:
            self.note_verdicts(self.observe())
        else:
            super().check()
        state = (len(self.log), len(self.checkpoints), self.first, self.truncated, self.remade)
        if state == self.checked or not self.checkpoints:
            return
        self.checked = state
        warm = self.observe()
        # Of a log that lost its tail the best counts, with which a reader begins: worse ones may tell of what was lost.
        for checkpoint in self.usable()[: 1 if self.truncated else 3]:
            cold = Reader(checkpoint, self.first)
            cold.read(self.log, len(self.log))
            self._agree(warm, cold, checkpoint)

    def _agree(self, warm: Reader, cold: Reader, checkpoint: Checkpoint) -> None:
        assert cold.store.entries() == warm.store.entries(), f"{cold.store.entries()} != {warm.store.entries()}"
        unlike: dict[str, Any] = {"start": None, "upto": 0}
        assert cold.store.facts()._replace(**unlike) == warm.store.facts()._replace(**unlike)
        assert cold.store.sources(1000) == warm.store.sources(1000)
        assert cold.store.judged(1000) == warm.store.judged(1000)
        for uuid in self.commands:
            told = cold.store.verdicts(uuid)
            assert not told or told == warm.store.verdicts(uuid)
        assert self._again(cold) == self._again(warm), "a checkpoint is a function of the log alone"

    def _again(self, reader: Reader) -> Checkpoint | None:
        return take(names.SCHEDULED, reader.store, reader.next, "", reader.trail) if reader.next else None


def _added(body: bytes) -> list[str]:
    value = json.loads(body)
    items = value if isinstance(value, list) else [value]
    return [item["jid"] for item in items if item.get("type") in ("scheduled_job", "again", "carry")]
