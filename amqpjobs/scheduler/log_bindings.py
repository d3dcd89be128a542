"""Which queues' jobs the broker puts on record in the stream `enqueued`, where AMQPJOBS_ENQUEUE_LOG is "bound".

Our own processes see to the queues that they declare (`topology.log_queue`); workers of other makes declare theirs
themselves, so the leader looks for those. Where the setting is another one, it takes down what was bound before.
"""

from __future__ import annotations

import contextlib
import logging

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.scheduler.election import Election
from amqpjobs.service import Service
from amqpjobs.streams import management, topology
from amqpjobs.streams.errors import BrokerError, ConnectionLost, Refused
from amqpjobs.streams.link import Link
from amqpjobs.streams.management import Api, NoApi, NotThere
from amqpjobs.streams.port import Connection

log = logging.getLogger("amqpjobs.scheduler")

INTERVAL = 10.0
"""Seconds between looks: for so long, jobs of a queue that another make of worker has just declared go unrecorded."""


class LogBindings(Service):
    """Sees to the enqueue log's bindings while this process is elected."""

    def __init__(self, link: Link, election: Election, clock: Clock) -> None:
        super().__init__("bindings of the enqueue log")
        self._link = link
        self._election = election
        self._clock = clock
        self._alone: set[str] = set()
        self._told: str | None = None

    async def run(self) -> None:
        """Elected: look again and again; or, where the setting is off, take down once what is there."""
        await self._election.serve(self._see_to)

    async def _see_to(self) -> None:
        bound = self._link.settings.enqueue_log == "bound"
        done = False
        while not done:
            try:
                connection = await self._link.connection()
                await (self._look(connection) if bound else self._take_down(connection))
                done, self._told = not bound, None
            except (BrokerError, NoApi) as error:
                self._tell(error)
            await self._clock.sleep(INTERVAL)
        await self._election.lost()

    async def _look(self, connection: Connection) -> None:
        """Put on record the queues that are not, and end what stands in for a queue that `jobs.direct` lost."""
        await topology.ensure_stream(connection, self._link.settings, names.ENQUEUED)
        await topology.ensure_log(connection)
        async with management.api(self._link.settings) as api:
            queues, logged = await _bound(api)
        for name in sorted(filter(names.is_queue_name, queues - logged)):
            await topology.log_queue(connection, name)
        # Somebody unbound the queue and did not delete it: its jobs would go to the log only, and count as routed.
        # Seen twice, as the broker's list is not of one moment, and a queue's own binding may be missing in it.
        alone = logged - queues
        for name in sorted(alone & self._alone):
            await connection.delete_exchange(names.log_exchange(name))
            log.warning("jobs for %s went to the enqueue log alone: it is unbound", names.broker_queue(name))
        self._alone = alone

    async def _take_down(self, connection: Connection) -> None:
        """Delete our exchanges. Those that only the API could name go with their queues: they lead nowhere then."""
        found = {names.LOG_EXCHANGE}
        with contextlib.suppress(NoApi):
            async with management.api(self._link.settings) as api:
                found = await _ours(api)
        for name in sorted(found):
            with contextlib.suppress(Refused):  # no right to: whoever has it did not set this up, or will see to it
                await connection.delete_exchange(name)

    def _tell(self, error: BrokerError | NoApi) -> None:
        """Once per outage; a lost connection is the link's to report, and what has no bindings yet is none."""
        if not isinstance(error, ConnectionLost | NotThere) and str(error) != self._told:
            self._told = str(error)
            log.warning("the enqueue log has only jobs of queues that processes of ours declared: %s", error)


async def _listed(api: Api, path: str, *columns: str) -> list[tuple[str, ...]]:
    found = await api.get(path, columns=",".join(columns))
    rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return [tuple(str(row.get(column)) for column in columns) for row in rows]


async def _bound(api: Api) -> tuple[set[str], set[str]]:
    """The names of the job queues that are bound to `jobs.direct`, and of those that are put on record."""
    path = f"exchanges/{{vhost}}/{names.JOBS_EXCHANGE}/bindings/source"
    found = await _listed(api, path, "routing_key", "destination_type", "destination")
    return (
        {key for key, kind, place in found if kind == "queue" and place == names.broker_queue(key)},
        {key for key, kind, place in found if kind == "exchange" and place == names.log_exchange(key)},
    )


async def _ours(api: Api) -> set[str]:
    """The enqueue log's exchanges."""
    found = await _listed(api, "exchanges/{vhost}", "name")
    return {name for (name,) in found if name == names.LOG_EXCHANGE or name.startswith(names.log_exchange(""))}
