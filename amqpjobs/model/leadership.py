"""What leaders write, as the fold of a delayed set takes it: epochs, terms, claims, settlements.

Each method says whether the entry counts. `replaying` is a reader that began with a checkpoint and has not passed its
`upto`: it takes every entry that the checkpoint's list of void ones does not name, and adopted the rest beforehand.
"""

from __future__ import annotations

from collections.abc import Callable

from amqpjobs.model.pending import Claim, Facts, Store, Trim
from amqpjobs.model.protocol import CLAIMED_HOWS, Claimed, EpochMark, How, Sealed, Settled, Term, Tick, Trimmed

FIRST_OFFSET = 1
"""The greatest first offset of a whole stream: RabbitMQ counts from 0, LavinMQ from 1."""


def headless(facts: Facts) -> bool:
    """Whether the fold began after the log's head was gone, and had no checkpoint to begin with."""
    return facts.upto == 0 and (facts.start or 0) > FIRST_OFFSET


class Leadership:
    """The part of a fold that knows terms. Works on the store of `DelayedSet`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fold(self, entry: Term | Claimed | Settled | Sealed | Trimmed, source: str, *, replaying: bool) -> bool:
        """Apply one entry of a leader or candidate."""
        match entry:
            case Term():
                return replaying or self._term(entry, source)
            case Claimed():
                return self._claim(entry, source, replaying)
            case Settled():
                return self._settle(entry, source, replaying)
            case Sealed():
                return replaying or self._note(entry, source, lambda facts: facts._replace(sealed=True))
            case Trimmed():
                trim = Trim(entry.first, entry.entries, entry.at)
                return replaying or self._note(entry, source, lambda facts: facts._replace(trimmed=trim))

    def epoch(self, mark: EpochMark) -> bool:
        """Rule 25: the first in a stream wins."""
        facts = self._store.facts()
        if facts.epoch is not None:
            return False
        self._store.keep_facts(facts._replace(epoch=mark.epoch))
        return True

    def _term(self, term: Term, source: str) -> bool:
        """Rule 7: a greater number leads; of two equal ones the first to land. Claims are untouched."""
        facts = self._store.facts()
        if term.epoch != facts.epoch or (facts.term is not None and term.n <= facts.term.n):
            return False
        self._store.keep_facts(facts._replace(term=Claim(term.n, source), leader=term.by))
        return True

    def _claim(self, claimed: Claimed, source: str, replaying: bool) -> bool:
        """Rule 9: the current leader claims what is pending, unclaimed, and still due: it may be rescheduled by now."""
        holder = Claim(claimed.n, source)
        facts = self._adopt(claimed.epoch, holder)
        if not replaying and (claimed.epoch != facts.epoch or facts.term != holder):
            return False
        self._store.claim(claimed.entries, holder, claimed.until)
        return True

    def _adopt(self, epoch: str, holder: Claim) -> Facts:
        """Without the log's head and a checkpoint, the first leader that is seen at work is the current one.

        Its `epoch` and `term` were trimmed away; were it not believed, all that it claimed and settled would be
        pending for ever in this view, and run again when this view comes to lead.
        """
        facts = self._store.facts()
        if headless(facts) and (facts.epoch is None or (facts.term is None and facts.epoch == epoch)):
            facts = facts._replace(epoch=epoch, term=facts.term or holder)
            self._store.keep_facts(facts)
        return facts

    def _settle(self, settled: Settled, source: str, replaying: bool) -> bool:
        """Rules 11 and 12."""
        facts = self._store.facts()
        if settled.how in CLAIMED_HOWS:
            if not replaying and settled.epoch != facts.epoch:
                return False
            self._store.end(settled.entries)
            return True
        if not replaying and not self._current(facts, settled, source):
            return False
        removed = 0
        for id_, rev in zip(settled.entries, settled.revs, strict=True):
            entry = self._store.get(id_)
            if entry is not None and entry.claim is None and entry.rev == rev:
                self._store.remove(id_)
                removed += 1
        if removed and settled.how is How.DROPPED and not replaying:
            self._store.keep_facts(facts._replace(dropped=facts.dropped + removed))
        return True

    def tick(self, tick: Tick, source: str, *, replaying: bool) -> bool:
        """Rule 19: under the current term, and only if it is later than the last one of its name."""
        holder = Claim(tick.n, source)
        facts = self._adopt(tick.epoch, holder)
        if replaying:
            return True
        if tick.epoch != facts.epoch or facts.term != holder:
            return False
        last = self._store.last_tick(tick.name)
        if last is not None and (tick.t >= last if tick.back else tick.t <= last):
            return False
        self._store.keep_tick(tick.name, tick.t)
        return True

    def _note(self, entry: Sealed | Trimmed, source: str, change: Callable[[Facts], Facts]) -> bool:
        facts = self._store.facts()
        if not self._current(facts, entry, source):
            return False
        self._store.keep_facts(change(facts))
        return True

    @staticmethod
    def _current(facts: Facts, entry: Sealed | Trimmed | Settled, source: str) -> bool:
        return entry.epoch == facts.epoch and facts.term == Claim(entry.n, source)
