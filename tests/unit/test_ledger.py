"""Which delivery settles a job whose channel was lost."""

from __future__ import annotations

from amqpjobs.streams.port import Incoming, Properties
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import Delivery, Subscription


def delivery(source: Subscription, *, again: bool = False) -> Delivery:
    return Delivery(Incoming(b"{}", 1, "jobs.direct", "q", again, Properties()), "q", source)


def lost(ledger: Ledger, *jobs: Delivery) -> None:
    for job in jobs:
        ledger.begin(job)
        job.source.lost = True
        ledger.lose(job.source)


def test_the_copy_of_a_job_in_hand_is_adopted_once() -> None:
    ledger, job = Ledger(), delivery(Subscription("q", 1))
    lost(ledger, job)
    new = Subscription("q", 1)
    assert ledger.adopt(delivery(new, again=True))
    assert job.source is new
    assert not ledger.adopt(delivery(new, again=True))


def test_the_copy_of_a_job_that_was_given_back_meanwhile_is_run() -> None:
    """It waited for a thread when its connection was lost, and a pause took it back: nobody would settle a copy."""
    ledger, job, other = Ledger(), delivery(Subscription("q", 1)), delivery(Subscription("q", 1))
    lost(ledger, job, other)
    ledger.give_back(job)
    new = Subscription("q", 1)
    assert ledger.adopt(delivery(new, again=True)), "the other one is still in hand"
    assert other.source is new
    assert not ledger.adopt(delivery(new, again=True))


async def test_of_jobs_that_are_written_together_only_those_of_a_living_channel_are_settled() -> None:
    """The broker gives the others again: their copies are acknowledged, and not run."""
    ledger, alive, gone, new = Ledger(), Subscription("q", 1), Subscription("q", 1), Subscription("q", 1)
    here, lost_one = delivery(alive), delivery(gone)
    alive.delivered(1)
    new.delivered(1)
    ledger.begin(here)
    lost(ledger, lost_one)
    ledger.written([here, lost_one])
    assert (alive.count, gone.count, len(ledger)) == (1, 0, 1)
    assert ledger.adopt(delivery(new, again=True))
    assert (new.count, len(ledger)) == (1, 0)
