"""The jobs in this worker's hands, from their start until they are acknowledged.

A lost connection takes the broker's side of a job away, not the job: its function runs on, or its outcome is known and
being written. The broker then delivers the job again, and often to this very worker. Such a copy is not run a second
time: the ledger adopts it, so that the one run settles it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from amqpjobs.worker.subscription import Delivery, Subscription

_REMEMBERED = 10_000
"""Written but unacknowledged jobs kept for adoption; each loss of a connection leaves at most the prefetched ones."""

_Key = tuple[str, bytes]


class Ledger:
    """Knows which delivery each job in hand is to be acknowledged by."""

    def __init__(self) -> None:
        self._open: set[Delivery] = set()
        self._orphans: OrderedDict[_Key, list[Delivery]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, delivery: Delivery) -> None:
        """Take a job in hand."""
        self._open.add(delivery)

    def written(self, deliveries: Iterable[Delivery]) -> None:
        """All that is recorded of these jobs is confirmed: acknowledge each, or wait for the copy of what is lost."""
        for delivery in deliveries:
            delivery.written = True
            if not delivery.source.lost:
                self._open.discard(delivery)
                delivery.source.settle(delivery.incoming.tag)

    def give_back(self, delivery: Delivery) -> None:
        """Put the job back on its queue, as if it had not been taken."""
        self._open.discard(delivery)
        delivery.give_back()

    def lose(self, source: Subscription) -> None:
        """The subscription's channel is gone: its open jobs wait for their copies."""
        for delivery in self._open:
            if delivery.source is source:
                self._orphans.setdefault(_key(delivery), []).append(delivery)
        while len(self._orphans) > _REMEMBERED:
            for delivery in self._orphans.popitem(last=False)[1]:
                self._open.discard(delivery)

    def adopt(self, copy: Delivery) -> bool:
        """Whether this is the copy of a job in hand; if so it is taken as that job's delivery, and must not be run.

        The whole body is compared, and each job adopts one copy: two equal jobs remain two.
        """
        if not (self._orphans and copy.incoming.redelivered):
            return False
        waiting = self._orphans.pop(_key(copy), [])
        while waiting:
            delivery = waiting.pop(0)
            if delivery in self._open:  # else it was given back while it waited: nobody runs it here any more
                break
        else:
            return False
        if waiting:
            self._orphans[_key(copy)] = waiting
        delivery.came_again(copy)
        if delivery.written:
            self.written([delivery])
        return True


def _key(delivery: Delivery) -> _Key:
    return delivery.queue, delivery.incoming.body
