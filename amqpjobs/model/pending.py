"""What waits in a delayed set, and the store that its fold works on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from amqpjobs.model.position import Position
from amqpjobs.model.words import Verdict


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


def due_at(entry: Pending, until: float | None) -> bool:
    """Whether it is due at that time; None: whenever it is."""
    return until is None or (entry.due is not None and entry.due <= until)


class Trim(NamedTuple):
    """Retention took `entries` pending entries, all that stood before the offset `first`; noticed at `at`."""

    first: int
    entries: int
    at: float


class Facts(NamedTuple):
    """What a fold knows of its stream as a whole.

    `leader` names the process of the current term; `log_time` is the greatest `at` of a command so far. `start` is the
    first offset that this fold saw. Below `upto` it takes from the log only what the checkpoint that it began with
    leaves standing. `sealed`: what an earlier incarnation held has been brought over. `trimmed`: the last loss.
    `dropped` entries were taken out because the set was full or they were too old.
    """

    epoch: str | None = None
    term: Claim | None = None
    leader: str = ""
    log_time: float = 0.0
    start: int | None = None
    upto: int = 0
    sealed: bool = False
    trimmed: Trim | None = None
    dropped: int = 0


class Source(NamedTuple):
    """Who appends (`from`), the number of its last message, and where that stands."""

    source: str
    seq: int
    offset: int


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

    def sources(self, limit: int) -> list[Source]:
        """Those that appended last, the latest first."""
        ...

    def low(self) -> Position | None:
        """The least position of a pending entry."""
        ...

    def is_void(self, pos: Position) -> bool:
        """Whether what stands there has no effect (item WHOLE: the whole message)."""
        ...

    def keep_void(self, pos: Position) -> None:
        """Remember that it has none."""
        ...

    def voids(self) -> list[Position]:
        """All that are remembered, in order."""
        ...

    def forget_voids(self, before: int) -> None:
        """Drop those of smaller offsets."""
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

    def claim(self, ids: Iterable[str], holder: Claim, until: float | None = None) -> None:
        """Claim those that are there, unclaimed, and due at `until`, unless that is None."""
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

    def ticks(self) -> dict[str, int]:
        """The last tick of each recurring job that ever had one, by name."""
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

    def judged(self, limit: int) -> list[tuple[str, float]]:
        """The commands whose verdicts are kept, by uuid and `at`, the latest first."""
        ...
