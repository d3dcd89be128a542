"""The jobs in this worker's hands, from their start until they are acknowledged.

A lost connection takes the broker's side of a job away, not the job: its function runs on, or its outcome is known and
being written. The broker then delivers the job again, and often to this very worker. Such a copy is not run a second
time: the ledger adopts it, so that the one run settles it.
"""

from __future__ import annotations

from collections import OrderedDict

from amqpjobs.worker.subscription import Delivery, Subscription

_REMEMBERED = 10_000
"""Written but unacknowledged jobs kept for adoption; each loss of a connection leaves at most the prefetched ones."""

_Key = tuple[str, bytes]


class Work:
    """One job in hand. `written`: all that must be recorded of it is confirmed."""

    __slots__ = ("delivery", "written")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.written = False


class Ledger:
    """Knows which delivery each job in hand is to be acknowledged by."""

    def __init__(self) -> None:
        self._open: set[Work] = set()
        self._orphans: OrderedDict[_Key, list[Work]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, delivery: Delivery) -> Work:
        """Take a job in hand."""
        work = Work(delivery)
        self._open.add(work)
        return work

    def written(self, work: Work) -> None:
        """All of the job's outcome is confirmed: acknowledge it, or wait for its copy when its delivery is lost."""
        work.written = True
        if not work.delivery.lost:
            self._finish(work)

    def give_back(self, work: Work) -> None:
        """Put the job back on its queue, as if it had not been taken."""
        self._open.discard(work)
        work.delivery.give_back()

    def lose(self, source: Subscription) -> None:
        """The subscription's channel is gone: its open jobs wait for their copies."""
        for work in self._open:
            if work.delivery.source is source:
                self._orphans.setdefault(_key(work.delivery), []).append(work)
        while len(self._orphans) > _REMEMBERED:
            for work in self._orphans.popitem(last=False)[1]:
                self._open.discard(work)

    def adopt(self, delivery: Delivery) -> bool:
        """Whether this is the copy of a job in hand; if so it is taken as that job's delivery, and must not be run.

        The whole body is compared, and each job adopts one copy: two equal jobs remain two.
        """
        if not (self._orphans and delivery.incoming.redelivered):
            return False
        waiting = self._orphans.get(_key(delivery))
        if not waiting:
            return False
        work = waiting.pop(0)
        if not waiting:
            del self._orphans[_key(delivery)]
        work.delivery = delivery
        if work.written:
            self._finish(work)
        return True

    def _finish(self, work: Work) -> None:
        self._open.discard(work)
        work.delivery.settle()


def _key(delivery: Delivery) -> _Key:
    return delivery.queue, delivery.incoming.body
