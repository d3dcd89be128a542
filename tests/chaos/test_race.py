"""Servers that race, and are killed, at a size for the suite; `make chaos` has 20 clients and 5,000 jobs."""

from __future__ import annotations

from amqpjobs.settings import Settings
from tests.chaos.race import Race


async def test_no_job_is_lost_and_no_lease_broken_where_servers_are_killed(settings: Settings) -> None:
    outcome = await Race(settings, jobs=40, clients=6, kills=1, seed=1).run()
    assert outcome.faults() == []
    assert outcome.kills == 1
