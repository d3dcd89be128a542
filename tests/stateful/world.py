"""A small world in which the protocol can be tried without a broker: one log, writers whose appends land late or
twice, candidates that crash between any two steps. What decides is the real fold, `amqpjobs.model.delayed`.

A candidate here takes the steps of `amqpjobs.scheduler.reign`, one at a time, so that anything may come between.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from amqpjobs.model import control, names
from amqpjobs.model.checkpoint import Checkpoint, adopt
from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.legacy import left_over
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.pending import Claim, Pending
from amqpjobs.model.protocol import Command, How, Op, Target, Verdict
from amqpjobs.model.trail import Step, continued, step

NOW = 100.0
LATER = 1e9


def _tick_body(t: int) -> bytes:
    return json.dumps({"type": "scheduled_job", "jid": f"r@{t}", "scheduled_at": 0.0, "job": {"class": "R"}}).encode()


class Reader:
    """A fold and how far it has read; with a checkpoint, a cold reader that begins with that."""

    def __init__(self, checkpoint: Checkpoint | None = None, first: int = 0) -> None:
        self.store = MemoryStore()
        self.set = DelayedSet(names.SCHEDULED, self.store)
        self.next = first
        self.trail: tuple[Step, ...] = ()
        if checkpoint is not None:
            adopt(checkpoint, self.store)
            self.next = max(first, checkpoint.low)
            self.trail = checkpoint.trail

    def read(self, log: list[bytes], count: int = 1) -> None:
        for body in log[self.next : self.next + count]:
            self.set.fold(self.next, body)
            self.trail = continued(self.trail, [step(self.next, body)])
            self.next += 1

    def due(self) -> list[Pending]:
        free = [e for e in self.store.entries().values() if e.claim is None and e.due is not None and e.due <= NOW]
        return sorted(free, key=lambda e: (e.due, e.pos))

    def claimed(self) -> list[Pending]:
        return sorted((e for e in self.store.entries().values() if e.claim), key=lambda e: e.pos)


@dataclass
class Candidate:
    """A scheduler process. `sending` is its one unconfirmed append."""

    source: str
    reader: Reader
    seq: int = 0
    sending: bytes | None = None
    phase: str = "start"
    term: Claim | None = None
    old: list[tuple[str | None, list[Pending], dict[str, int]]] = field(default_factory=list)
    publishing: list[Pending] = field(default_factory=list)
    published: list[Pending] = field(default_factory=list)
    brought: bool = False
    claiming: list[str] = field(default_factory=list)

    def append(self, *entries: dict[str, Any]) -> None:
        assert self.sending is None, "one unconfirmed append at a time"
        self.seq += 1
        first = entries[0] | {"from": self.source, "seq": self.seq}
        self.sending = json.dumps([first, *entries[1:]]).encode()

    @property
    def idle(self) -> bool:
        """Its last append is confirmed and folded by itself."""
        return self.sending is None and self.reader.store.last_seq(self.source) >= self.seq


class World:
    """The log and everyone around it."""

    def __init__(self, candidates: int = 2) -> None:
        self.log: list[bytes] = []
        self.sources = 0
        self.candidates = [self._candidate(Reader()) for _ in range(candidates)]
        self.late: list[bytes] = []
        self.publications: Counter[str] = Counter()
        self.added: list[str] = []
        self.commands: dict[str, tuple[Op, str]] = {}
        self.tick = 0
        """The clock of the recurring job: the greatest tick that is due."""
        self.deleted: set[str] = set()
        self.postponed: set[str] = set()
        self.excused: set[str] = set()
        """Jids that nobody had read when their stream was deleted: no one can bring those back."""
        self.remade = 0

    def _candidate(self, reader: Reader) -> Candidate:
        self.sources += 1
        return Candidate(f"s{self.sources}", reader)

    # What strangers and people do.

    def add(self, *, due: float = 0.0, copies: int = 1) -> str:
        """A stranger's entry, or with `copies` > 1 our own client's, whose confirm was lost: the rest lands late."""
        jid = f"j{len(self.added)}"
        self.added.append(jid)
        entry = {"type": "scheduled_job", "jid": jid, "scheduled_at": due, "job": {"class": "C", "args": []}}
        if copies > 1:
            entry |= {"from": f"client {jid}", "seq": 1}
        body = json.dumps(entry).encode()
        self.log.append(body)
        self.late += [body] * (copies - 1)
        return jid

    def command(self, op: Op, jid: str) -> str:
        uuid = f"u{len(self.commands)}"
        self.commands[uuid] = (op, jid)
        due = LATER if op is Op.RESCHEDULE else None
        command = Command(uuid=uuid, op=op, targets=(Target(jid, None),), at=NOW, by="test", due=due)
        self.log.append(json.dumps(control.write_command(command)).encode())
        return uuid

    def delete(self, jid: str) -> None:
        self.command(Op.DELETE, jid)

    def restore(self, deletion: str) -> None:
        """Undo a deletion that was done, as people do it: by the entry's own bytes, under a uuid that it implies."""
        op, jid = self.commands[deletion]
        uuid = f"undo {deletion}"
        observer = self.observe()
        if op is not Op.DELETE or observer.store.verdicts(deletion) != [Verdict.DONE] or uuid in self.commands:
            return
        for offset, body in enumerate(self.log):
            entry = json.loads(body)
            if isinstance(entry, dict) and entry.get("jid") == jid:
                self.commands[uuid] = (Op.RESTORE, jid)
                target = Target(jid, str(offset))
                epoch = observer.store.facts().epoch
                command = Command(uuid, Op.RESTORE, (target,), at=NOW, by="test", epoch=epoch, body=body)
                self.log.append(json.dumps(control.write_command(command)).encode())
                return

    def repeat_command(self, uuid: str) -> None:
        """A page whose confirm was lost sends its command again."""
        body = next((b for b in self.log if json.loads(b) and f'"{uuid}"'.encode() in b), None)
        if body is not None:
            self.log.append(body)

    # What the network and the machines do.

    def land(self, who: Candidate, *, confirm: bool) -> None:
        if who.sending is not None:
            self.log.append(who.sending)
            if confirm:
                who.sending = None

    def read(self, index: int, count: int = 1) -> None:
        """A candidate's own fold goes on."""
        self.candidates[index].reader.read(self.log, count)

    def land_late(self, which: int) -> None:
        if self.late:
            self.log.append(self.late.pop(which % len(self.late)))

    def crash(self, index: int, *, cold: bool) -> None:
        """Kill -9 and start again: with its view, or on a fresh disk."""
        gone = self.candidates[index]
        if gone.sending is not None:
            self.late.append(gone.sending)
        reborn = self._candidate(self.cold() if cold else gone.reader)
        reborn.old = [] if cold else gone.old
        self.candidates[index] = reborn

    def cold(self) -> Reader:
        """A reader on a fresh disk."""
        return Reader()

    def make_anew(self) -> None:
        """The stream is deleted and declared again; everyone notices and sets its state aside."""
        self.remade += 1
        observer = self.observe()
        known = {e.jid for c in self.candidates for e in c.reader.store.entries().values()}
        known |= {e.jid for c in self.candidates for _, page, _ in c.old for e in page}
        self.excused |= {e.jid for e in observer.store.entries().values()} - known
        # what nobody had read of deletions is gone too, so what they deleted may come back
        for who in self.candidates:
            if who.sending is not None:
                self.late.append(who.sending)
            state = who.reader.store
            pending = list(state.entries().values())
            if pending or state.ticks():
                who.old.append((state.facts().epoch, pending, state.ticks()))
            reborn = self._candidate(Reader())
            reborn.old = who.old
            self.candidates[self.candidates.index(who)] = reborn
        read = [e.jid for c in self.candidates for _, page, _ in c.old for e in page]
        self.deleted -= set(read)
        self.log.clear()

    # What a candidate does next.

    def act(self, who: Candidate) -> None:
        if not who.idle:
            return
        facts = who.reader.store.facts()
        match who.phase:
            case "start":
                who.append(control.write_epoch(facts.epoch or f"E{who.source}", at=NOW))
                who.phase = "epoch"
            case "epoch" | "bid" if facts.term != who.term or who.term is None:
                assert facts.epoch is not None
                who.term = Claim(facts.term.n + 1 if facts.term else 1, who.source)
                who.append(control.write_term(facts.epoch, who.term.n, by=who.source, at=NOW))
                who.phase = "bid"
            case "bid":
                who.phase = "lead"
            case "lead" if facts.term != who.term:
                who.phase = "deposed"
            case "lead":
                self._lead(who)
            case "deposed":
                index = self.candidates.index(who)
                self.candidates[index] = self._candidate(who.reader)
                self.candidates[index].old = who.old

    def act_beside(self, who: Candidate) -> None:
        """What goes on beside the claims (`scheduler.outflow`): it waits for no fold, and not for the term's end."""
        if who.phase != "lead":
            return
        if who.publishing:  # one at a time, so that a crash may come between
            entry = who.publishing.pop(0)
            self.publications[entry.jid] += 1
            who.published.append(entry)
        elif who.published and who.sending is None:
            self._settle(who)

    def claim_beside(self, who: Candidate) -> None:
        """The next claim, while what was granted before is still on its way."""
        facts, due = who.reader.store.facts(), who.reader.due()
        if who.phase != "lead" or not who.idle or facts.term != who.term or who.claiming or not due:
            return
        assert facts.epoch is not None and who.term is not None
        who.claiming = [entry.id for entry in due]
        who.append(control.write_claimed(facts.epoch, who.term.n, who.claiming, until=NOW))

    def _settle(self, who: Candidate) -> None:
        epoch, term = who.reader.store.facts().epoch, who.term
        assert epoch is not None and term is not None
        ids = [entry.id for entry in who.published]
        who.append(control.write_settled(epoch, term.n, ids, How.ENQUEUED, by=who.source, at=NOW))
        who.published = []

    def _lead(self, who: Candidate) -> None:
        epoch, term = who.reader.store.facts().epoch, who.term
        assert epoch is not None and term is not None
        if who.claiming:
            who.publishing += [e for e in who.reader.claimed() if e.id in who.claiming and e.claim == term]
            who.claiming = []
        if who.publishing:
            self.act_beside(who)
        elif who.published:
            self._settle(who)
        elif who.old and who.brought:  # it is on record, as our own fold says: the old state may go
            who.old.pop(0)
            who.brought = False
        elif who.old:
            self._bring_over(who, *who.old[0])
            who.brought = True
        elif not who.reader.store.facts().sealed:
            who.append(control.write_sealed(epoch, term.n, at=NOW))
        elif (last := who.reader.store.last_tick("r") or 0) < self.tick:
            missing = range(last + 1, self.tick + 1)
            who.append(*(control.write_tick(epoch, term.n, "r", t, _tick_body(t)) for t in missing))
        elif claimed := who.reader.claimed():
            who.publishing = claimed
        elif due := who.reader.due():
            who.append(control.write_claimed(epoch, term.n, [entry.id for entry in due], until=NOW))

    def _bring_over(self, who: Candidate, epoch: str | None, pending: list[Pending], ticks: dict[str, int]) -> None:
        store, term = who.reader.store, who.term
        now = store.facts().epoch
        assert now is not None and term is not None
        entries = left_over(store, epoch, pending)
        if entries is None:
            self.excused |= {entry.jid for entry in pending}
        again = [control.write_again(again) for again in entries or ()]
        if messages := again + [control.write_tick(now, term.n, name, t) for name, t in ticks.items()]:
            who.append(*messages)

    # What must hold.

    def observe(self) -> Reader:
        reader = Reader()
        reader.read(self.log, len(self.log))
        return reader

    def note_verdicts(self, reader: Reader) -> None:
        """Who gave a command was told what came of it."""
        for uuid, (op, jid) in self.commands.items():
            verdicts = reader.store.verdicts(uuid)
            if op is Op.DELETE and verdicts == [Verdict.DONE]:
                self.deleted.add(jid)
            if op is Op.RESTORE and verdicts == [Verdict.DONE]:
                self.deleted.discard(jid)
            if op is Op.RESCHEDULE and verdicts == [Verdict.DONE]:
                self.postponed.add(jid)
            if op in (Op.TRIGGER, Op.RESTORE) and verdicts == [Verdict.DONE]:
                self.postponed.discard(jid)

    def check(self) -> None:
        """The bounds that hold in every state."""
        reader, terms_since_claim = Reader(), Counter[str]()
        entries: defaultdict[str, set[str]] = defaultdict(set)
        for _ in range(len(self.log)):
            before = reader.store.facts().term
            reader.read(self.log)
            for entry in reader.store.entries().values():
                entries[entry.jid].add(entry.id)
            if reader.store.facts().term != before:
                for entry in reader.claimed():
                    terms_since_claim[entry.jid] += 1
        if not self.remade:
            assert all(len(entries[jid]) <= 1 for jid in entries if jid.startswith("r@")), "a tick happened twice"
            for jid, count in self.publications.items():
                crashes = terms_since_claim[jid]
                assert count <= 1 + crashes, f"{jid} was published {count} times over {crashes} successions"
        self.note_verdicts(reader)
        if not self.remade:
            for jid in self.deleted:
                assert self.publications[jid] == 0, f"{jid} ran although its deletion was done"
            for jid in self.postponed:
                assert self.publications[jid] == 0, f"{jid} ran although it was to run later"

    def finish(self) -> None:
        """Let the dust settle: one candidate alone, everything lands. Then nothing may be missing."""
        while self.late:
            self.land_late(0)
        for who in list(self.candidates):
            self._run(who.source)
            self.check()
        for t in range(1, self.tick + 1):
            jid = f"r@{t}"
            assert self.publications[jid] >= 1 or jid in self.excused, f"tick {t} is lost"
        left = {e.jid for e in self.observe().store.entries().values()}
        for jid in self.added:
            assert jid in left or jid in self.deleted or jid in self.excused or self.publications[jid] >= 1, (
                f"{jid} is lost"
            )
        due = self.observe().due()
        assert not due, f"due and not published: {[e.jid for e in due]}"

    def _run(self, source: str) -> None:
        index = next(i for i, c in enumerate(self.candidates) if c.source == source)
        for _ in range(400):
            who = self.candidates[index]
            before = _progress(who)
            self.act(who)
            who = self.candidates[index]
            self.land(who, confirm=True)
            self.read(index, len(self.log))
            who = self.candidates[index]
            if _progress(who) == before:
                return
        raise AssertionError("a candidate alone never came to rest")


def _progress(who: Candidate) -> tuple[object, ...]:
    """What is another after each step that a candidate takes."""
    own = (who.source, who.phase, who.seq, who.sending, who.brought, tuple(who.claiming))
    return (*own, len(who.publishing), len(who.published), len(who.old), who.reader.next)
