"""What holds for all, as a pure fold of the stream `controls`: pauses, orders, cancellations, recurring jobs.

Wire forms are in docs/protocol.md. An entry that is not well formed has no effect, and nothing here raises, whatever
the stream holds: a worker that could be stopped by an entry would be stopped by it again after each restart.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

from amqpjobs.model import fields, names, protocol, reading, recurring
from amqpjobs.model.fields import Problem
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.recurring import Recurring, Refused

DAY = 86_400.0
"""Seconds for which orders and cancellations hold."""
MOST_CANCELLED = 10_000
"""Cancellations that a snapshot carries, the newest: it must fit a message, and is written every few minutes."""
EVERYBODY = "*"
"""Names every process in an order."""

MOST_REFUSED = 20
"""Declarations that were refused and are remembered, the latest."""

_SOURCES = 10_000
"""Writers whose last number is remembered: only a repeat that comes later than so many others is taken twice."""

OrderOp = Literal["quiet", "stop"]


class Order(NamedTuple):
    """Asked of the processes that go by `process` (a nonce, an identity, or "*") and booted before `at`."""

    op: OrderOp
    process: str
    at: float

    def concerns(self, *, nonce: str, identity: str, boot_at: float) -> bool:
        """Whether this process is meant. One that started after the order was given is not."""
        return self.process in (EVERYBODY, nonce, identity) and boot_at < self.at


@dataclass(frozen=True, slots=True)
class Controls:
    """What holds now. `cancelled` has the time of each cancellation, by jid. Times are seconds since 1970."""

    paused: frozenset[str] = frozenset()
    orders: tuple[Order, ...] = ()
    cancelled: Mapping[str, float] = field(default_factory=dict)
    recurring: Mapping[str, Recurring] = field(default_factory=dict)
    """Recurring jobs by name."""


def apply(controls: Controls, value: Any) -> Controls:
    """What holds after one more entry; the same object when it has no effect."""
    return apply_all(controls, (value,))


def apply_all(controls: Controls, values: Iterable[Any]) -> Controls:
    """What holds after several more entries: one copy for all of them."""
    draft: _Draft | None = None
    for value in values:
        read = read_entry(value)
        if read is not None:
            draft = draft or _Draft(controls)
            draft.take(read)
    after = controls if draft is None else draft.finished()
    return controls if after == controls else after


def forget(controls: Controls, before: float) -> Controls:
    """Without the orders and cancellations that are older; pauses and recurring jobs hold until they are lifted."""
    return replace(
        controls,
        orders=tuple(order for order in controls.orders if order.at >= before),
        cancelled={jid: at for jid, at in controls.cancelled.items() if at >= before},
    )


def kept(controls: Controls, at: float) -> Controls:
    """What a snapshot at `at` carries: the last day's, and of cancellations the newest."""
    recent = forget(controls, at - DAY)
    if len(recent.cancelled) <= MOST_CANCELLED:
        return recent
    newest = sorted(recent.cancelled.items(), key=lambda item: (item[1], item[0]))[-MOST_CANCELLED:]
    return replace(recent, cancelled=dict(newest))


def snapshot(controls: Controls, at: float, *, after: int | None = None) -> dict[str, Any]:
    """The entry that says all of it as of `at`. `after`: the offset of the last message that it takes into account."""
    keep = kept(controls, at)
    entry = {
        "type": "controls_snapshot",
        "paused": sorted(keep.paused),
        "orders": [order._asdict() for order in keep.orders],
        "cancelled": [{"jid": jid, "at": when} for jid, when in keep.cancelled.items()],
        "recurring": [recurring.write_standing(each) for each in keep.recurring.values()],
        "at": at,
    }
    return entry if after is None else entry | {"after": after}


# Writing.


def write_pause(queue: str, *, by: str, at: float) -> dict[str, Any]:
    """The entry that keeps every worker from starting jobs of a queue."""
    return {"type": "control", "op": "pause", "queue": queue, "by": by, "at": at}


def write_resume(queue: str, *, by: str, at: float) -> dict[str, Any]:
    """The entry that lifts a pause."""
    return {"type": "control", "op": "resume", "queue": queue, "by": by, "at": at}


def write_order(op: OrderOp, process: str, *, by: str, at: float) -> dict[str, Any]:
    """The entry that asks a process (nonce, identity or "*") to take no more jobs, or to stop."""
    return {"type": "control", "op": op, "process": process, "by": by, "at": at}


def write_cancel(jid: str, *, by: str, at: float) -> dict[str, Any]:
    """The entry that cancels a job wherever a worker meets it."""
    return {"type": "control", "op": "cancel", "jid": jid, "by": by, "at": at}


# Reading.


class Pause(NamedTuple):
    """A queue is paused, or resumed."""

    queue: str
    on: bool


class Cancel(NamedTuple):
    """A job is cancelled."""

    jid: str
    at: float


class Snapshot(NamedTuple):
    """All that holds, as of the message at offset `after`.

    One without `recurring` was written by a version that knows no recurring jobs: those that are known stay.
    """

    controls: Controls
    after: int | None
    recurring: bool = True


Entry = Pause | Order | Cancel | Snapshot | recurring.Change | Refused


def read_entry(value: Any) -> Entry | None:
    """What an entry says; None where it is no control, or not well formed."""
    if not isinstance(value, dict):
        return None
    if value.get("type") == "controls_snapshot":
        return _read_snapshot(value)
    if value.get("type") == "recurring":
        return recurring.read_change(value)
    return _read_control(value) if value.get("type") == "control" else None


def _read_control(value: dict[str, Any]) -> Entry | None:
    match value.get("op"):
        case "pause" | "resume" as op:
            queue = value.get("queue")
            return Pause(cast(str, queue), op == "pause") if names.is_queue_name(queue) else None
        case "cancel":
            return _read_cancel(value)
        case _:
            return _read_order(value)


def _read_order(value: Any) -> Order | None:
    if not isinstance(value, dict):
        return None
    op, process, at = value.get("op"), fields.name(value.get("process")), fields.instant(value.get("at"))
    if op not in ("quiet", "stop") or process is None or isinstance(at, Problem):
        return None
    return Order(op, process, at)


def _read_cancel(value: Any) -> Cancel | None:
    if not isinstance(value, dict):
        return None
    jid, at = fields.name(value.get("jid")), fields.instant(value.get("at"))
    return None if jid is None or isinstance(at, Problem) else Cancel(jid, at)


def _read_snapshot(value: dict[str, Any]) -> Snapshot | None:
    lists = [value.get(name) for name in ("paused", "orders", "cancelled")]
    if not all(isinstance(each, list) for each in lists):
        return None
    paused, orders, cancelled = cast(list[list[Any]], lists)
    listed = value.get("recurring")
    known = [each for each in map(recurring.read_standing, listed if isinstance(listed, list) else []) if each]
    draft = _Draft(
        Controls(
            frozenset(queue for queue in paused if names.is_queue_name(queue)),
            recurring={each.schedule.name: each for each in known},
        )
    )
    for entry in (*map(_read_order, orders), *map(_read_cancel, cancelled)):
        if entry is not None:
            draft.take(entry)
    after = value.get("after")
    offset = after if isinstance(after, int) and not isinstance(after, bool) else None
    return Snapshot(draft.finished(), offset, isinstance(listed, list))


class _Draft:
    """`Controls` under change."""

    _recurring: Mapping[str, Recurring]

    def __init__(self, controls: Controls) -> None:
        self._begin(controls)

    def take(self, entry: Entry) -> None:
        match entry:
            case Pause(queue, on):
                (self._paused.add if on else self._paused.discard)(queue)
            case Order(op, process, at):  # of two equal ones the later concerns whom the earlier does
                self._orders[op, process] = max(at, self._orders.get((op, process), at))
            case Cancel(jid, at):
                self._cancelled[jid] = max(at, self._cancelled.get(jid, at))
            case Snapshot(controls, _, said):
                self._begin(controls if said else replace(controls, recurring=self._recurring))
            case recurring.Declared() | recurring.Paused() | recurring.Removed():
                self._recurring = recurring.take(self._recurring, entry)

    def finished(self) -> Controls:
        orders = (Order(op, process, at) for (op, process), at in self._orders.items())
        ordered = tuple(sorted(orders, key=lambda order: (order.at, order.op, order.process)))
        return Controls(frozenset(self._paused), ordered, self._cancelled, self._recurring)

    def _begin(self, controls: Controls) -> None:
        self._paused = set(controls.paused)
        self._orders = {(order.op, order.process): order.at for order in controls.orders}
        self._cancelled = dict(controls.cancelled)
        self._recurring = controls.recurring


class ControlLog:
    """The fold of whole messages: repeats of one message count once, and a snapshot that is out of date not at all.

    A leader writes a snapshot of what it has read; whoever pauses a queue in that very moment comes before it in the
    stream, and was not read by it. `after` tells: such a snapshot is not taken, and the leader writes another.
    """

    def __init__(self) -> None:
        self.controls = Controls()
        self.changed = False
        """Whether something was asked for that no snapshot has said yet."""
        self.asked = 0
        """How often something was asked for; it only grows."""
        self.refused: deque[Refused] = deque(maxlen=MOST_REFUSED)
        """Declarations of recurring jobs that had no effect, the latest last."""
        self._last_control = -1
        self._seqs: OrderedDict[str, int] = OrderedDict()

    def fold(self, offset: int, body: bytes) -> None:
        """Apply the message at `offset`."""
        values = reading.values(body)
        if isinstance(values, Unreadable) or not values or self._repeated(values[0]):
            return
        fresh = [value for value in values if self._counts(read_entry(value), offset)]
        self.controls = apply_all(self.controls, fresh)

    def renew(self) -> None:
        """The stream was made anew. What held goes on to hold, until its first snapshot says otherwise."""
        self._news()
        self._last_control = -1
        self._seqs.clear()

    def _counts(self, entry: Entry | None, offset: int) -> bool:
        if isinstance(entry, Snapshot):
            if entry.after is not None and entry.after < self._last_control:
                return False
            self.changed = False
            return True
        if isinstance(entry, recurring.Declared):
            entry = recurring.refused_for_room(self.controls.recurring, entry) or entry
        if isinstance(entry, Refused):
            self.refused.append(entry)
            return False
        if entry is not None:
            self._last_control = offset
            self._news()
        return entry is not None

    def _news(self) -> None:
        self.changed = True
        self.asked += 1

    def _repeated(self, first: Any) -> bool:
        origin = protocol.read_source(first)
        if origin is None:
            return False
        source, seq = origin
        if seq <= self._seqs.get(source, -1):
            return True
        self._seqs[source] = seq
        self._seqs.move_to_end(source)
        while len(self._seqs) > _SOURCES:
            self._seqs.popitem(last=False)
        return False
