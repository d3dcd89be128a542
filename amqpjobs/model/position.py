"""Where an entry stands, and the identity that it has from where it first stood."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

WHOLE = -1
"""In place of an item: the message as a whole."""


class Position(NamedTuple):
    """Where an entry stands in its stream: the message's offset, and which item of that message it is."""

    offset: int
    item: int

    @property
    def id(self) -> str:
        """The identity of an entry that first appeared here: "1234", or "1234:7" within an array."""
        return str(self.offset) if self.item == 0 else f"{self.offset}:{self.item}"


def first_offset(id_: str) -> int | None:
    """The offset at which an entry of this identity first appeared; None of an earlier incarnation's."""
    head = id_.partition(":")[0]
    return int(head) if head.isascii() and head.isdigit() else None


def foreign_id(epoch: str | None, entry: str, raw: bytes) -> str:
    """The identity, in another incarnation of the stream, of an entry that first appeared in `epoch`.

    An incarnation that no leader lived to name (None) lends no name: two such ones in a row would give the same to
    different entries, and the second would be taken for a repeat of the first. The entry's own bytes tell them apart.
    """
    if "/" in entry:
        return entry
    return f"{epoch or '~' + hashlib.blake2b(raw, digest_size=8).hexdigest()}/{entry}"
