"""The whole product as processes: scheduler, worker and dashboard, as an operator starts them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from amqpjobs.settings import Settings
from tests.broker.programs import Program, Programs, environment
from tests.conftest import Broker
from tests.patience import PATIENCE


class Site(NamedTuple):
    """Three programs that said that they are ready."""

    scheduler: Program
    worker: Program
    web: Program
    address: str

    @property
    def lines(self) -> list[str]:
        return [line for program in self.programs for line in program.lines]

    @property
    def programs(self) -> Sequence[Program]:
        return self.scheduler, self.worker, self.web

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.address + path, timeout=PATIENCE)


def start(programs: Programs, settings: Settings, *, ready: bool = True, **more: str) -> Site:
    """Start it on the broker of the settings; `more` is environment."""
    known = environment(settings) | more
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    scheduler = programs.start("-m", "amqpjobs.scheduler", "-v", env=known)
    worker = programs.start("-m", "amqpjobs.worker", "-v", "-A", "workers.demo", "-q", "default", env=known)
    web = programs.start("-m", "amqpjobs.web", "--port", str(port), env=known)
    site = Site(scheduler, worker, web, f"http://127.0.0.1:{port}")
    if ready:
        for program in site.programs:
            program.wait_for(r"\bready\b")
    return site


@contextmanager
def user(broker: Broker, vhost: str, name: str, password: str, *, tags: str = "", **rights: str) -> Iterator[str]:
    """A user of the virtual host (all rights unless told otherwise), and the address that it connects with."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with broker.api() as api:
        api.put(f"/users/{quote(name, safe='')}", json={"password": password, "tags": tags}).raise_for_status()
        place = f"/permissions/{quote(vhost, safe='')}/{quote(name, safe='')}"
        api.put(place, json=everything | rights).raise_for_status()
    host = urlsplit(broker.url).netloc.rpartition("@")[2]
    scheme = urlsplit(broker.url).scheme
    try:
        yield f"{scheme}://{quote(name, safe='')}:{quote(password, safe='')}@{host}/{quote(vhost, safe='')}"
    finally:
        with broker.api() as api:
            api.delete(f"/users/{quote(name, safe='')}")


def call(programs: Programs, *arguments: str, settings: Settings, **more: str) -> Program:
    """Run a program to its end; its exit status is `program.wait()`."""
    program = programs.start(*arguments, env=environment(settings) | more)
    program.wait()
    return program
