"""The fold of a delayed set: scheduled jobs, retries, dead jobs. The heart of the product.

One stream holds everything that ever happened to the set, in one order: entries that wait, claims, settlements,
commands. `DelayedSet.fold` applies one message after another to a `Store`; it does no I/O of its own, knows no clock
and no randomness, so every process that folds the same messages holds the same set. The rule numbers are those of
docs/engine.md; tests/stateful checks them with crashes, deposed leaders, repeats and streams made anew.

An entry whose condition does not hold has no effect. Nothing here raises, whatever the log holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amqpjobs.model import names, protocol, reading, unwrapped
from amqpjobs.model.arrival import Arrival, arrive, derived_jid, pending, read_one
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Claim, Facts, Pending, Store
from amqpjobs.model.protocol import (
    CLAIMED_HOWS,
    CONTROL_TYPES,
    Again,
    Claimed,
    Command,
    EpochMark,
    How,
    Op,
    Position,
    Settled,
    Target,
    Term,
    Tick,
    Verdict,
)
from amqpjobs.model.rejected import rejected

FOLD_VERSION = 5
"""Raised whenever the same log would fold to another state: a view of another version rebuilds itself."""

FIRST_OFFSET = 1
"""The greatest first offset of a whole stream: RabbitMQ counts from 0, LavinMQ from 1."""

VERDICT_AGE = 86_400.0
"""Seconds of the log's own time for which the verdict of a command is kept."""

ENTRY_TYPES = frozenset({"scheduled_job", "retry", "dead_job"})


class DelayedSet:
    """Folds one delayed stream (`names.SCHEDULED`, `names.RETRIES` or `names.DEAD`) into a store."""

    def __init__(self, stream: str, store: Store) -> None:
        if stream not in names.DELAYED:
            raise ValueError(f"{stream!r} is no delayed set; these are: {', '.join(names.DELAYED)}")
        self.stream = stream
        self.store = store

    def fold(self, offset: int, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Apply the message at `offset`; its headers matter only where they stand for an entry or for a rejection.

        See `unwrapped` and `rejected`.
        """
        refused = rejected(body, headers) if headers and self.stream == names.DEAD else None
        if headers:
            body = unwrapped.joined(body, headers)
        facts = self.store.facts()
        if facts.headless is None:
            self.store.keep_facts(facts._replace(headless=offset > FIRST_OFFSET))
        found = refused or reading.pieces(body)
        if isinstance(found, Unreadable):
            pos = Position(offset, 0)
            self.store.put(pending(self.stream, pos, found))
            return
        if not found:
            return
        source, repeated = self._origin(found[0].value, offset)
        if repeated:
            return
        for piece in found:
            self._apply(Position(offset, piece.index), piece, source)

    def _origin(self, first: Any, offset: int) -> tuple[str | None, bool]:
        """Rule 2: who appended this message of ours, and whether it is a repeat."""
        origin = protocol.read_source(first)
        if origin is None:
            return None, False
        source, seq = origin
        if seq <= self.store.last_seq(source):
            return source, True
        self.store.keep_seq(source, seq, offset)
        return source, False

    def _apply(self, pos: Position, piece: reading.Piece, source: str | None) -> None:
        value = piece.value
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in CONTROL_TYPES and "job" not in value:
            self._control(pos, value, source)
        elif source is None or not isinstance(kind, str) or kind in ENTRY_TYPES:
            self._add(pos, piece)
        # else: a type that a later version of ours wrote; it has no effect here

    def _control(self, pos: Position, value: Mapping[str, Any], source: str | None) -> None:
        match protocol.read_control(value):
            case EpochMark(epoch):
                self._epoch(epoch)
            case Term() as term if source is not None:
                self._term(term, source)
            case Claimed() as claimed if source is not None:
                self._claim(claimed, source)
            case Settled() as settled if source is not None:
                self._settle(settled, source)
            case Command() as command:
                self._command(pos, command)
            case Again() as again:
                self._again(pos, again)
            case Tick() as tick if source is not None:
                self._tick(pos, tick, source)
            case _:
                return

    # Entries that wait.

    def _add(self, pos: Position, piece: reading.Piece) -> None:
        """Rule 5: a new pending entry, unless one that is here says the same or more."""
        arrival = arrive(self.stream, pos, piece)
        if not arrival.readable or self._makes_way(arrival):
            self.store.put(arrival.entry)

    def _makes_way(self, arrival: Arrival) -> bool:
        """Remove what the entry replaces; False when it is to have no effect itself."""
        entry = arrival.entry
        if self.stream == names.SCHEDULED:
            if arrival.replaces:  # rule 6
                self._remove_free(self.store.of_jid(entry.jid))
            return True
        same = [e for e in self.store.of_jid(entry.jid) if e.key == entry.key]
        if self.stream == names.DEAD:
            return not same
        if any(e.claim is None and e.summary.retry_count > entry.summary.retry_count for e in same):
            return False
        self._remove_free(same)
        return True

    def _remove_free(self, entries: list[Pending]) -> None:
        for entry in entries:
            if entry.claim is None:
                self.store.remove(entry.id)

    def _again(self, pos: Position, again: Again) -> None:
        """Rule 24: an earlier incarnation's entry is pending under its old identity, the first time it is seen."""
        if self.store.seen(again.id):
            return
        self.store.keep_seen(again.id)
        entry = pending(self.stream, pos, read_one(self.stream, again.body, jid=again.jid))
        fault = again.fault or entry.fault
        self.store.put(replace(entry, id=again.id, jid=again.jid, due=again.due, bury=again.bury, fault=fault))

    # Leadership.

    def _epoch(self, epoch: str) -> None:
        """Rule 25: the first in a stream wins."""
        facts = self.store.facts()
        if facts.epoch is None:
            self.store.keep_facts(facts._replace(epoch=epoch))

    def _term(self, term: Term, source: str) -> None:
        """Rule 7: a greater number leads; of two equal ones the first to land. Claims are untouched."""
        facts = self.store.facts()
        if term.epoch == facts.epoch and (facts.term is None or term.n > facts.term.n):
            self.store.keep_facts(facts._replace(term=Claim(term.n, source), leader=term.by))

    def _claim(self, claimed: Claimed, source: str) -> None:
        """Rule 9: the current leader claims what is pending and unclaimed."""
        holder = Claim(claimed.n, source)
        facts = self._adopt(claimed.epoch, holder)
        if claimed.epoch != facts.epoch or facts.term != holder:
            return
        self.store.claim(claimed.entries, holder)

    def _adopt(self, epoch: str, holder: Claim) -> Facts:
        """Without the log's head, the first leader that is seen at work is the current one, in the current epoch.

        Its `epoch` and `term` were trimmed away; were it not believed, all that it claimed and settled would be
        pending for ever in this view, and run again when this view comes to lead.
        """
        facts = self.store.facts()
        if facts.headless and (facts.epoch is None or (facts.term is None and facts.epoch == epoch)):
            facts = facts._replace(epoch=epoch, term=facts.term or holder)
            self.store.keep_facts(facts)
        return facts

    def _settle(self, settled: Settled, source: str) -> None:
        """Rules 11 and 12."""
        facts = self.store.facts()
        if settled.epoch != facts.epoch:
            return
        if settled.how in CLAIMED_HOWS:
            self.store.end(settled.entries)
            return
        if facts.term != Claim(settled.n, source):
            return
        removed = 0
        for id_, rev in zip(settled.entries, settled.revs, strict=True):
            entry = self.store.get(id_)
            if entry is not None and entry.claim is None and entry.rev == rev:
                self.store.remove(id_)
                removed += 1
        if removed and settled.how is How.DROPPED:
            self.store.keep_facts(facts._replace(dropped=facts.dropped + removed))

    # Recurring jobs.

    def _tick(self, pos: Position, tick: Tick, source: str) -> None:
        """Rule 19: under the current term, and only if it is later than the last one of its name.

        The tick is the entry of its job: there is no moment at which it has happened and the job is not yet there.
        """
        holder = Claim(tick.n, source)
        facts = self._adopt(tick.epoch, holder)
        if tick.epoch != facts.epoch or facts.term != holder:
            return
        last = self.store.last_tick(tick.name)
        if last is not None and (tick.t >= last if tick.back else tick.t <= last):
            return
        self.store.keep_tick(tick.name, tick.t)
        if tick.body is not None:
            jid = derived_jid(self.stream, pos, tick.body)
            self.store.put(pending(self.stream, pos, read_one(self.stream, tick.body, jid=jid)))

    # Commands.

    def _command(self, pos: Position, command: Command) -> None:
        """Rules 15 to 18: judge each target, once."""
        if self.store.verdicts(command.uuid) is not None:
            return
        facts = self.store.facts()
        if command.epoch is not None and command.epoch != facts.epoch:
            verdicts = [Verdict.NOT_FOUND for _ in command.targets]
        else:
            verdicts = [self._judge(pos, command, target) for target in command.targets]
        self._keep(command, verdicts, facts)

    def _keep(self, command: Command, verdicts: list[Verdict], facts: Facts) -> None:
        self.store.keep_verdicts(command.uuid, verdicts, command.at)
        if command.at > facts.log_time:
            self.store.keep_facts(facts._replace(log_time=command.at))
            self.store.forget_verdicts(command.at - VERDICT_AGE)

    def _judge(self, pos: Position, command: Command, target: Target) -> Verdict:
        if command.op is Op.RESTORE:
            return self._restore(pos, command, target)
        entry = self._target(target)
        if entry is None:
            return Verdict.NOT_FOUND
        if entry.claim is not None:
            return Verdict.CONFLICT
        match command.op:
            case Op.DELETE:
                self.store.remove(entry.id)
            case Op.TRIGGER:
                self.store.change(replace(entry, due=command.at, rev=pos))
            case Op.RESCHEDULE:
                if entry.bury or self.stream == names.DEAD:
                    return Verdict.CONFLICT
                self.store.change(replace(entry, due=command.due, rev=pos))
            case Op.KILL:
                if self.stream == names.DEAD:
                    return Verdict.CONFLICT
                self.store.change(replace(entry, due=command.at, rev=pos, bury=True, fault=_kill_fault(command, entry)))
        return Verdict.DONE

    def _restore(self, pos: Position, command: Command, target: Target) -> Verdict:
        """Rule 17: what was deleted is pending again, under its identity, so that it comes back only once."""
        assert target.entry is not None and command.body is not None, "a restore was read"
        if self.store.get(target.entry) is not None:
            return Verdict.CONFLICT
        entry = pending(self.stream, pos, read_one(self.stream, command.body, jid=target.jid))
        due = entry.due if command.due is None or self.stream == names.DEAD else command.due
        self.store.put(replace(entry, id=target.entry, jid=target.jid, due=due))
        return Verdict.DONE

    def _target(self, target: Target) -> Pending | None:
        if target.entry is not None:
            entry = self.store.get(target.entry)
            return entry if entry is not None and entry.jid == target.jid else None
        found = self.store.of_jid(target.jid)
        free = [entry for entry in found if entry.claim is None]
        return free[-1] if free else found[-1] if found else None


def _kill_fault(command: Command, entry: Pending) -> tuple[str, str]:
    """What a killed entry's dead record says: the command's own reason, else the entry's last error."""
    last = entry.fault or (entry.summary.error_class, entry.summary.error_message)
    return (command.error_class or last[0] or "Killed", command.error_message or last[1] or f"killed by {command.by}")
