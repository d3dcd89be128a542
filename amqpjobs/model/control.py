"""Writing the control entries of a delayed stream, as `protocol` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqpjobs.model.copies import write_again, write_body, write_carry
from amqpjobs.model.protocol import Command, How, Position

__all__ = [
    "write_again",
    "write_carry",
    "write_claimed",
    "write_command",
    "write_dropped",
    "write_epoch",
    "write_sealed",
    "write_settled",
    "write_term",
    "write_tick",
    "write_trimmed",
]


def write_epoch(epoch: str, *, at: float) -> dict[str, Any]:
    """The entry that names an incarnation."""
    return {"type": "epoch", "epoch": epoch, "at": at}


def write_term(epoch: str, n: int, *, by: str, at: float) -> dict[str, Any]:
    """The entry by which a candidate bids for term `n`."""
    return {"type": "term", "epoch": epoch, "n": n, "by": by, "at": at}


def write_claimed(epoch: str, n: int, entries: Sequence[str], *, until: float | None = None) -> dict[str, Any]:
    """The entry by which the leader of term `n` claims what of these is due at `until`; None: all."""
    told = {} if until is None else {"until": until}
    return {"type": "claimed", "epoch": epoch, "n": n, "entries": list(entries)} | told


def write_settled(epoch: str, n: int, entries: Sequence[str], how: How, *, by: str, at: float) -> dict[str, Any]:
    """The entry that says that claimed entries were published, confirmed and are over."""
    return {"type": "settled", "epoch": epoch, "n": n, "entries": list(entries), "how": how, "by": by, "at": at}


def write_dropped(epoch: str, n: int, entries: Sequence[tuple[str, Position]], *, by: str, at: float) -> dict[str, Any]:
    """The entry by which the leader takes unclaimed entries out, each at the revision that it saw."""
    revs = [list(rev) for _, rev in entries]
    return write_settled(epoch, n, [id_ for id_, _ in entries], How.DROPPED, by=by, at=at) | {"revs": revs}


def write_command(command: Command) -> dict[str, Any]:
    """The entry of an operator's command."""
    fields: dict[str, Any] = {
        "type": "command",
        "uuid": command.uuid,
        "op": command.op,
        "entries": [{"jid": t.jid} if t.entry is None else {"jid": t.jid, "entry": t.entry} for t in command.targets],
        "by": command.by,
        "at": command.at,
    }
    optional = {
        "epoch": command.epoch,
        "due": command.due,
        "error_class": command.error_class,
        "error_message": command.error_message,
    }
    told = {name: value for name, value in optional.items() if value is not None}
    return fields | told | ({} if command.body is None else write_body(command.body))


def write_tick(
    epoch: str, n: int, name: str, t: int, body: bytes | None = None, *, back: bool = False
) -> dict[str, Any]:
    """The entry by which the leader of term `n` lets tick `t` of a recurring job happen, or only remembers it."""
    fields: dict[str, Any] = {"type": "tick", "epoch": epoch, "n": n, "name": name, "t": t}
    if back:
        fields["back"] = True
    return fields if body is None else fields | {"body": body.decode("utf-8")}


def write_sealed(epoch: str, n: int, *, at: float) -> dict[str, Any]:
    """The entry after which an incarnation takes nothing more of an earlier one, and has checkpoints."""
    return {"type": "sealed", "epoch": epoch, "n": n, "at": at}


def write_trimmed(epoch: str, n: int, *, first: int, entries: int, at: float) -> dict[str, Any]:
    """The entry that puts on record that retention took what was pending."""
    return {"type": "trimmed", "epoch": epoch, "n": n, "first": first, "entries": entries, "at": at}
