"""The fold of `job_events`: commands and the leader's ticks, one after another, into a store of tracked jobs.

As in the delayed sets (`model.delayed`) the log is the truth: it does no I/O, knows no clock, and never raises, so all
who fold the same messages hold the same jobs. Who takes a job is decided by the order of the log, and by nothing else:
of any number of servers that take at once, each gets another job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpjobs.model import protocol, reading, tracked_pages, values
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Claim
from amqpjobs.model.tracked import ITEM_BITS, Judged, Store, Verdict, Word
from amqpjobs.model.tracked_acts import Acts
from amqpjobs.model.tracked_commands import Command
from amqpjobs.model.tracked_wire import read_command

FOLD_VERSION = 4
"""Raised whenever the same log would fold to another state: a view of another version rebuilds itself."""

VERDICT_AGE = 86_400.0
"""Seconds of the log's own time for which the verdict of a command is kept."""
FORGET_EVERY = 3600.0
"""Seconds of the log's time between two such clearings."""


class TrackedSet:
    """Folds `job_events` into a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._acts = Acts(store)

    def fold(self, offset: int, body: bytes) -> list[Judged]:
        """Apply the message at `offset`; the verdicts that it brought."""
        found = reading.pieces(body)
        if isinstance(found, Unreadable) or not found:
            return []
        origin = protocol.read_source(found[0].value)
        if origin is not None and origin[1] <= self.store.last_seq(origin[0]):
            return []  # an append whose confirm was lost comes again under its number
        if origin is not None:
            self.store.keep_seq(*origin, offset)
        source = None if origin is None else origin[0]
        judged = [self._apply(offset, piece, source) for piece in found if isinstance(piece.value, dict)]
        return [each for each in judged if each is not None]

    def _apply(self, offset: int, piece: reading.Piece, source: str | None) -> Judged | None:
        value = piece.value
        match value.get("type"):
            case "command":
                command = read_command(piece)
                return None if command is None else self._judge(self._number(offset, piece.index), command)
            case "tick":
                self._tick(self._number(offset, piece.index), value, source)
            case "offered":
                self._offered(value, source)
            case "epoch" | "term":
                self._lead(value, source)
            case "page" if value.get("restore") is True and self._by_leader(source):
                tracked_pages.load(self.store, value, piece.raw)
            case "sealed" if self._by_leader(source):
                self.store.keep_stand(self.store.stand()._replace(sealed=True))
            case "pages_end" if isinstance(at := value.get("at"), float):
                self.store.keep_stand(self.store.stand()._replace(paged_at=at))
        return None

    def _number(self, offset: int, item: int) -> int | None:
        """The number of the job that stands here; None where an item is beyond what numbers can tell apart."""
        return None if item >> ITEM_BITS else self.store.stand().base + (offset << ITEM_BITS | item)

    def _judge(self, number: int | None, command: Command) -> Judged:
        """A command is judged once; a repeat of it gets the same verdict, and has no effect."""
        known = self.store.verdict(command.uuid)
        if known is not None:
            return Judged(command.uuid, known, None if known.job is None else self.store.get(known.job))
        if command.act is None or number is None or self.store.get(number) is not None:
            word, job = Word.REFUSED, None
        else:
            word, job = self._acts.act(number, command)
        verdict = Verdict(word, None if job is None else job.id)
        self.store.keep_verdict(command.uuid, verdict, command.at)
        self._forget(command.at)
        return Judged(command.uuid, verdict, job)

    def _forget(self, at: float) -> None:
        stand = self.store.stand()
        if at <= stand.forgot_at + FORGET_EVERY:
            return
        self.store.forget_verdicts(at - VERDICT_AGE)
        self.store.keep_stand(stand._replace(log_time=at, forgot_at=at))

    def _lead(self, value: Mapping[str, Any], source: str | None) -> None:
        """The first epoch names the incarnation; a greater term leads, of two equal ones the first to land."""
        stand, control = self.store.stand(), protocol.read_control(value)
        if isinstance(control, protocol.EpochMark) and stand.epoch is None:
            base = value.get("base", 0)
            known = isinstance(base, int) and not isinstance(base, bool) and 0 <= base < 2**53
            self.store.keep_stand(stand._replace(epoch=control.epoch, base=base if known else 0))
        if not isinstance(control, protocol.Term) or source is None or control.epoch != stand.epoch:
            return
        if stand.term is None or control.n > stand.term.n:
            self.store.keep_stand(stand._replace(term=Claim(control.n, source), leader=control.by))

    def _by_leader(self, source: str | None) -> bool:
        """Whether the current leader brings over what an earlier life of the stream held."""
        stand = self.store.stand()
        return stand.term is not None and source == stand.term.source and not stand.sealed

    def _offered(self, value: Mapping[str, Any], source: str | None) -> None:
        """The leader has told AMQP workers of these jobs, as they were queued then."""
        try:
            if not self._is_current(value, source):
                return
            for id_, place in value["jobs"]:
                job = self.store.get(values.whole(id_))
                if job is not None and job.to_offer and job.place == place:
                    self.store.change(job._replace(offered=job.place))
        except (KeyError, TypeError, ValueError):
            return

    def _is_current(self, value: Mapping[str, Any], source: str | None) -> bool:
        stand = self.store.stand()
        epoch, n = values.text(value["epoch"]), values.whole(value["n"])
        return source is not None and epoch == stand.epoch and stand.term == Claim(n, source)

    def _tick(self, number: int | None, value: Mapping[str, Any], source: str | None) -> None:
        """The leader says that a job's time has come; whether it has is for the fold to say: a sign of life may have
        come first."""
        try:
            current = self._is_current(value, source)
            id_, at = values.whole(value["job"]), values.number(value["at"])
        except (KeyError, TypeError, ValueError):
            return
        job = self.store.get(id_)
        if current and job is not None and number is not None:
            self._acts.tick(number, job, at)
