"""The RabbitMQ that is measured: one that runs (BENCH_URL), or a private one on the host's package."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pika
import psutil

from amqpjobs.addresses import Address, bracketed, brokers, web
from amqpjobs.broker.node import HEAPS
from benchmarks.processes import ROOT, BenchmarkError

START_TIMEOUT = 90.0
HERE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker by its AMQP address and its management API's base."""

    address: Address
    management: str

    def url(self, vhost: str) -> str:
        """The AMQP address of a virtual host."""
        user, password = quote(self.address.user, safe=""), quote(self.address.password, safe="")
        host = bracketed(self.address.host)
        return f"amqp://{user}:{password}@{host}:{self.address.port}/{quote(vhost, safe='')}"

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the management API. Raises BenchmarkError."""
        auth = (self.address.user, self.address.password)
        try:
            answer = httpx.request(method, f"{self.management}/api/{path}", json=body, auth=auth, timeout=30)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise BenchmarkError(f"the management API at {self.management}: {error}") from None
        return answer.json() if answer.content else None

    @property
    def version(self) -> str:
        """Product and version, and whether it has room for heaps where it runs here."""
        overview = self.api("GET", "overview")
        told = ", room for heaps" if self.address.host in HERE and has_room(self.address.port) else ""
        return f"{overview.get('product_name', 'RabbitMQ')} {overview.get('product_version', '?')}{told}"

    @contextlib.contextmanager
    def vhost(self) -> Iterator[str]:
        """A virtual host of our own while the block runs."""
        name = f"bench-{secrets.token_hex(4)}"
        self.api("PUT", f"vhosts/{name}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.api("PUT", f"permissions/{name}/{quote(self.address.user, safe='')}", everything)
        try:
            yield name
        finally:
            with contextlib.suppress(BenchmarkError):
                self.api("DELETE", f"vhosts/{name}")

    def channels(self, vhost: str) -> int:
        """How many channels are open in a virtual host."""
        return len(self.api("GET", f"vhosts/{quote(vhost, safe='')}/channels"))


def has_room(port: int) -> bool:
    """Whether the Erlang node that listens on this machine's port was started with all of `node.HEAPS`.

    False too where this user may not see who listens.
    """
    try:
        listening = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
        pid = next((each.pid for each in listening if each.laddr and each.laddr.port == port), None)
        arguments = psutil.Process(pid).cmdline() if pid else []
    except psutil.Error:
        return False
    told = dict(itertools.pairwise(arguments))  # the last one counts
    wanted = HEAPS.replace("+", "-").split()
    return all(told.get(name) == size for name, size in zip(wanted[::2], wanted[1::2], strict=True))


class Depths:
    """Asks how many messages of a queue nobody has taken yet: a passive declare, which the queue answers in turn."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # nobody answers them while another product is measured: the broker would hang up
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()

    def ready(self, queue: str) -> int:
        """Messages that wait in the queue; 0 where there is none yet."""
        try:
            return int(self._channel.queue_declare(queue, passive=True).method.message_count)
        except pika.exceptions.ChannelClosedByBroker:
            self._channel = self._connection.channel()
            return 0

    def purge(self, queue: str) -> None:
        """Empty a queue, if it exists."""
        try:
            self._channel.queue_purge(queue)
        except pika.exceptions.ChannelClosedByBroker:
            self._channel = self._connection.channel()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()


def known(text: str, management: str | None = None) -> Broker:
    """The broker at `amqp-url` or `amqp-url|management-url`; without the latter the port is AMQP's plus 10,000."""
    url, _, beside = text.partition("|")
    address = brokers(url)[0]
    base = management or beside or f"http://{bracketed(address.host)}:{address.port + 10_000}"
    return Broker(address, web(base).base)


@contextlib.contextmanager
def measured_broker(work: Path) -> Iterator[Broker]:
    """The broker to measure on."""
    url = os.environ.get("BENCH_URL")
    if url:
        yield known(url, os.environ.get("BENCH_MANAGEMENT_URL"))
        return
    command = [sys.executable, "-m", "amqpjobs", "broker", "--data", str(work / "broker")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        words = _ready_line(process).split()
        yield known(words[2], words[4])
    finally:
        process.terminate()
        process.wait()


def _ready_line(process: subprocess.Popen[str]) -> str:
    """`broker ready: URL management URL data FOLDER`."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 1.0)[0]:
            line = process.stdout.readline()
            if line.startswith("broker ready:"):
                return line
            if not line:
                break
    raise BenchmarkError("no broker: install rabbitmq-server, or name a running one in BENCH_URL")
