"""What an earlier life of a stream leaves to the present one."""

from __future__ import annotations

from collections.abc import Sequence

from amqpjobs.model.copies import Again
from amqpjobs.model.leadership import FIRST_OFFSET
from amqpjobs.model.pending import Pending, Store
from amqpjobs.model.position import foreign_id


def left_over(store: Store, epoch: str | None, pending: Sequence[Pending]) -> list[Again] | None:
    """What is to be appended again of entries that were pending in `epoch`, given our fold of the stream as it is now.

    None: it cannot be told, and none may be. The incarnation was sealed, and this fold began with a checkpoint, so it
    does not know which of them came over and ran since: all that waited when this old state was kept would run again.
    """
    facts = store.facts()
    if epoch is not None and epoch == facts.epoch:  # the same incarnation, and the broker lost its tail
        return [_again(entry, None, late=True) for entry in pending if not _stands(store, entry)]
    if not facts.sealed:
        return [_again(entry, epoch, late=False) for entry in pending]
    if facts.upto or (facts.start or 0) > FIRST_OFFSET:
        return None
    return [_again(e, epoch, late=True) for e in pending if not store.seen(foreign_id(epoch, e.id, e.raw))]


def _stands(store: Store, entry: Pending) -> bool:
    """Whether the log still holds it: at its offset another may stand by now."""
    here = store.get(entry.id)
    return here is not None and here.raw == entry.raw


def _again(entry: Pending, epoch: str | None, *, late: bool) -> Again:
    """What was claimed comes back unclaimed: whether it was published is unknown, and losing is worse than twice."""
    id_ = foreign_id(epoch, entry.id, entry.raw)
    return Again(id_, entry.jid, entry.due, entry.bury, entry.fault, entry.raw, late=late)
