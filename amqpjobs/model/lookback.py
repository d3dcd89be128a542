"""The entry that a message of the past brought: what a restore puts back. It is told by the fold itself, of this one
message, so whatever form the entry had there (alone, in an array, carried, appended again, restored before) is
understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpjobs.model.delayed import DelayedSet
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.pending import Facts, Pending
from amqpjobs.model.position import Position


def entry_of(
    stream: str, pos: Position, body: bytes, headers: Mapping[str, Any], *, jid: str, entry: str, epoch: str | None
) -> Pending | None:
    """The entry `entry` of job `jid` as the message at `pos` brought it, or None when it is not there."""
    store = MemoryStore()
    store.keep_facts(Facts(epoch=epoch, start=pos.offset, upto=pos.offset + 1))  # taken as it stands, unjudged
    DelayedSet(stream, store).fold(pos.offset, body, headers)
    found = store.get(entry) or store.get(pos.id)
    return found if found is not None and found.jid == jid else None
