"""Three HTTP servers on one broker, and clients that race for tracked jobs; servers may be killed meanwhile.

`python -m tests.chaos.race --jobs 5000 --clients 20 --kills 20` on a private broker (a part of `make chaos`); the test
suite runs small ones. Without kills each job is taken once and done once. With them each is done at least once, and no
attempt ends a job that has been given to another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from amqpjobs.broker.node import PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.settings import Settings
from tests.broker.programs import Program, environment

SERVERS = 3
LEASE = "3s"
"""How long an attempt may take where servers are killed."""
CARELESS = 0.02
"""The part of the jobs whose client vanishes with them, where servers are killed."""
UNKNOWN = (httpx.TransportError, httpx.TimeoutException)


@dataclass
class Outcome:
    """What the clients saw, by the number of the job."""

    jobs: int
    kills: int = 0
    taken: Counter[int] = field(default_factory=Counter)
    done: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    """Words of former holders, and repeats of words that had arrived."""
    broken: list[str] = field(default_factory=list)
    """Leases that were not honoured."""
    completed: int = 0
    """What the servers say is complete, in the end."""
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """What must not be."""
        found = list(self.broken)
        if self.completed != self.jobs:
            found.append(f"{self.completed} of {self.jobs} jobs are complete")
        if missing := self.jobs - len(self.taken):
            found.append(f"{missing} jobs were never taken")
        found += [f"job {n} was ended {times} times" for n, times in self.done.items() if times > 1]
        if not self.kills:
            found += [f"job {n} was taken {times} times" for n, times in self.taken.items() if times > 1]
        return found

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs in {self.seconds:.1f} s, {self.kills} servers killed: taken {self.taken.total()} times, "
            f"{len(self.done)} ends answered, {self.refused} refused; faults: {self.faults() or 'none'}"
        )


class Race:
    """One race on a broker that runs."""

    def __init__(self, settings: Settings, *, jobs: int, clients: int, kills: int, seed: int) -> None:
        self._env = environment(settings)
        self._ports = free_ports(SERVERS)
        self._clients = clients
        self._kills = kills
        self._random = random.Random(seed)
        self._servers: list[Program] = []
        self._holders: dict[int, str] = {}
        self._over = False
        self.outcome = Outcome(jobs)

    async def run(self) -> Outcome:
        """Start all, fill the queue, race, count; nothing of it runs afterwards."""
        scheduler = Program("-m", "amqpjobs.scheduler", env=self._env)
        try:
            self._servers = [self._serve(port) for port in self._ports]
            for program in (scheduler, *self._servers):
                await asyncio.to_thread(program.wait_for, "ready", 60)
            async with httpx.AsyncClient(timeout=30) as web:
                await self._fill(web)
                began = time.monotonic()
                await self._race(web)
                self.outcome.seconds = time.monotonic() - began
        finally:
            for program in (scheduler, *self._servers):
                program.end()
        return self.outcome

    def _serve(self, port: int) -> Program:
        return Program("-m", "amqpjobs.web", "--port", str(port), env=self._env)

    def _any(self, path: str) -> str:
        return f"http://127.0.0.1:{self._random.choice(self._ports)}{path}"

    async def _fill(self, web: httpx.AsyncClient) -> None:
        lease = LEASE if self._kills else "0s"
        queue = {"timeout": lease, "retries": 1000, "expires_after": "0s"}
        await self._until(web, "PUT", "/queue/race", {201, 204}, json=queue)

        async def create(first: int) -> None:
            for n in range(first, self.outcome.jobs, self._clients):
                await self._until(web, "POST", "/queue/race/job", {201}, json={"input": n})

        await asyncio.gather(*(create(first) for first in range(self._clients)))

    async def _race(self, web: httpx.AsyncClient) -> None:
        clients = [asyncio.create_task(self._client(web)) for _ in range(self._clients)]
        killing = asyncio.create_task(self._kill())
        try:
            while not self._over:
                await asyncio.sleep(0.1)
                if killing.done() and await self._completed(web) == self.outcome.jobs:
                    self._over = True
                for task in (killing, *clients):
                    if task.done():
                        task.result()
        finally:
            self._over = True
            killing.cancel()
            await asyncio.wait([killing, *clients], timeout=60)

    async def _client(self, web: httpx.AsyncClient) -> None:
        while not self._over:
            try:
                taken = await web.get(self._any("/queue/race/job"))
            except UNKNOWN:
                continue
            if taken.status_code != 200:
                await asyncio.sleep(0.05)
                continue
            job, token = taken.json(), taken.headers["X-Attempt"]
            self.outcome.taken[job["input"]] += 1
            self._holders[job["input"]] = token
            if not (self._kills and self._random.random() < CARELESS):
                await self._end(web, job, token)

    async def _end(self, web: httpx.AsyncClient, job: dict[str, int], token: str) -> None:
        held = self._holders[job["input"]] == token
        answer = await self._until(
            web, "PATCH", f"/job/{job['id']}", {204, 409}, json={"status": "completed"}, headers={"X-Attempt": token}
        )
        if answer.status_code == 409:
            self.outcome.refused += 1
            return
        self.outcome.done[job["input"]] += 1
        if not held:
            self.outcome.broken.append(f"job {job['input']} was ended by an attempt that had lost it")

    async def _kill(self) -> None:
        """One after the other; each comes back before the next one goes."""
        for _ in range(self._kills):
            await asyncio.sleep(self._random.uniform(0.2, 1.0))
            at = self._random.randrange(SERVERS)
            self._servers[at].send(signal.SIGKILL)
            await asyncio.to_thread(self._servers[at].wait)
            self.outcome.kills += 1
            self._servers[at] = self._serve(self._ports[at])
            await asyncio.to_thread(self._servers[at].wait_for, "ready", 60)

    async def _completed(self, web: httpx.AsyncClient) -> int:
        with contextlib.suppress(*UNKNOWN):
            self.outcome.completed = (await web.get(self._any("/info"))).json()["jobs"].get("completed", 0)
        return self.outcome.completed

    async def _until(
        self, web: httpx.AsyncClient, method: str, path: str, wanted: set[int], **more: object
    ) -> httpx.Response:
        """Ask this or that server until one says something that is wanted: others may be dead, or not know yet."""
        while True:
            with contextlib.suppress(*UNKNOWN):
                answer = await web.request(method, self._any(path), **more)  # type: ignore[arg-type]
                if answer.status_code in wanted:
                    return answer
            await asyncio.sleep(0.05)


async def _on_a_private_broker(jobs: int, clients: int, kills: int, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="amqpjobs-race-") as name:
        folder = Path(name)
        node = PrivateNode(folder / "broker")
        settings = Settings(url=node.url, management_url=node.management_url, state_dir=folder / "state")
        await node.start()
        try:
            return await Race(settings, jobs=jobs, clients=clients, kills=kills, seed=seed).run()
        finally:
            await node.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.race", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcome = asyncio.run(_on_a_private_broker(given.jobs, given.clients, given.kills, given.seed))
    print(outcome)
    return 1 if outcome.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
