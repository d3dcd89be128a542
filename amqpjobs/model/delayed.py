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
from amqpjobs.model.copies import brought_over, carried
from amqpjobs.model.leadership import Leadership, headless
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Facts, Pending, Store
from amqpjobs.model.position import WHOLE, Position, first_offset
from amqpjobs.model.protocol import (
    CONTROL_TYPES,
    Again,
    Carry,
    Command,
    EpochMark,
    Op,
    Target,
    Tick,
    Verdict,
)
from amqpjobs.model.rejected import rejected

FOLD_VERSION = 9
"""Raised whenever the same log would fold to another state: a view of another version rebuilds itself."""

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
        self._leadership = Leadership(store)
        self._replaying = False

    def fold(self, offset: int, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Apply the message at `offset`; its headers matter only where they stand for an entry or for a rejection.

        See `unwrapped` and `rejected`.
        """
        facts = self.store.facts()
        if facts.start is None:
            self.store.keep_facts(facts._replace(start=offset))
        self._replaying = offset < facts.upto
        if self._replaying and self.store.is_void(Position(offset, WHOLE)):
            return
        refused = rejected(body, headers) if headers and self.stream == names.DEAD else None
        if headers:
            body = unwrapped.joined(body, headers)
        found = refused or reading.pieces(body)
        if isinstance(found, Unreadable):
            pos = Position(offset, 0)
            self.store.put(pending(self.stream, pos, found))
            return
        if found:
            self._message(offset, found)

    def overtaken(self, first: int) -> None:
        """Retention took what was not folded yet, up to `first`: who leads now may have come to it in there."""
        self.store.keep_facts(self.store.facts()._replace(term=None, start=first, upto=0))

    def _message(self, offset: int, pieces: list[reading.Piece]) -> None:
        """Rule 2: a repeat of a message of ours has no effect."""
        origin = protocol.read_source(pieces[0].value)
        source = None
        if origin is not None:
            source, seq = origin
            if not self._replaying:
                if seq <= self.store.last_seq(source):
                    self.store.keep_void(Position(offset, WHOLE))
                    return
                self.store.keep_seq(source, seq, offset)
        for piece in pieces:
            self._apply(Position(offset, piece.index), piece, source)

    def _apply(self, pos: Position, piece: reading.Piece, source: str | None) -> None:
        """Rule 4: what has no effect here must have none for a reader that begins later, and knows less."""
        if self._replaying and self.store.is_void(pos):
            return
        if not self._effective(pos, piece, source) and not self._replaying:
            self.store.keep_void(pos)

    def _effective(self, pos: Position, piece: reading.Piece, source: str | None) -> bool:
        value = piece.value
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in CONTROL_TYPES and "job" not in value:
            return self._control(pos, value, source)
        if source is None or not isinstance(kind, str) or kind in ENTRY_TYPES:
            return self._add(pos, piece)
        return True  # a type that a later version of ours wrote: it has no effect in any fold of this one

    def _control(self, pos: Position, value: Mapping[str, Any], source: str | None) -> bool:
        """Whether the entry counts; what is not well formed, or of no origin, counts for nobody."""
        control = protocol.read_control(value)
        match control:
            case EpochMark():
                return self._replaying or self._leadership.epoch(control)
            case Command():
                return self._command(pos, control)
            case Again():
                return self._again(pos, control)
            case None:
                return True
        return source is None or self._of_ours(pos, control, source)

    def _of_ours(self, pos: Position, control: protocol.OfOurs, source: str) -> bool:
        match control:
            case Carry():
                return self._carry(pos, control)
            case Tick():
                return self._tick(pos, control, source)
        return self._leadership.fold(control, source, replaying=self._replaying)

    # Entries that wait.

    def _add(self, pos: Position, piece: reading.Piece) -> bool:
        """Rule 5: a new pending entry, unless one that is here says the same or more."""
        arrival = arrive(self.stream, pos, piece)
        if arrival.readable and not self._makes_way(arrival):
            return False
        self.store.put(arrival.entry)
        return True

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

    def _again(self, pos: Position, again: Again) -> bool:
        """Rule 24: an earlier incarnation's entry is pending under its old identity, the first time it is seen.

        Once this incarnation is sealed (rule 25), checkpoints forget which were seen: such an entry comes too late, or
        is a new one, unless the same is waiting.
        """
        if again.late:
            if any(e.raw == again.body for e in self.store.of_jid(again.jid)):
                return False
        elif self.store.seen(again.id) or (self.store.facts().sealed and not self._replaying):
            return False
        else:
            self.store.keep_seen(again.id)
        self.store.put(brought_over(self.stream, pos, again))
        return True

    def _carry(self, pos: Position, carry: Carry) -> bool:
        """Rules 13 and 14: the position moves, never the identity; a copy of what has changed since does nothing.

        Nor does a copy of what a broker lost with the log's tail: another job may stand at that offset now, of the same
        revision. Whoever saw it would keep that job, and whoever began later would take the copy for it.
        """
        entry = self.store.get(carry.id)
        if entry is None:
            if not self._began_before_us(carry.id):
                return False
            self.store.put(carried(self.stream, pos, carry))
            return True
        if entry.claim is not None or entry.rev != carry.rev or (entry.jid, entry.raw) != (carry.jid, carry.body):
            return False
        self.store.change(replace(entry, pos=pos, rev=pos))
        return True

    def _began_before_us(self, id_: str) -> bool:
        """Rule 14: whether an entry that is not here is one that we never saw, rather than one that is gone.

        Below `upto` the checkpoint vouches for each copy that it does not call void. A reader without head and
        checkpoint believes the leader: the other way round every entry that waits would be lost to it.
        """
        facts = self.store.facts()
        if not self._replaying and not headless(facts):
            return False
        first = first_offset(id_)
        return not self.store.seen(id_) if first is None else first < (facts.start or 0)

    # Recurring jobs.

    def _tick(self, pos: Position, tick: Tick, source: str) -> bool:
        """Rule 19: the tick is the entry of its job: there is no moment at which it has happened without one."""
        if not self._leadership.tick(tick, source, replaying=self._replaying):
            return False
        if tick.body is not None:
            jid = derived_jid(self.stream, pos, tick.body)
            self.store.put(pending(self.stream, pos, read_one(self.stream, tick.body, jid=jid)))
        return True

    # Commands.

    def _command(self, pos: Position, command: Command) -> bool:
        """Rules 15 to 18 and 22: judge each target, once; below `upto` our verdict is not to be relied on."""
        if not self._replaying and self.store.verdicts(command.uuid) is not None:
            return False
        facts = self.store.facts()
        if command.epoch is not None and command.epoch != facts.epoch and not self._replaying:
            self._keep(command, [Verdict.NOT_FOUND for _ in command.targets], facts)
            return False
        verdicts = [self._judge(pos, command, target) for target in command.targets]
        self._keep(command, [] if self._replaying else verdicts, facts)
        return command.op is not Op.RESTORE or verdicts == [Verdict.DONE]

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
