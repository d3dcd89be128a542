"""A private Redis that writes nothing to disk, and the few commands that are asked of it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from amqpjobs.broker.ports import free_ports
from benchmarks.processes import BenchmarkError, Command, running


class Redis:
    """One connection, one command at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._file = self._socket.makefile("rb")

    def ask(self, *words: str) -> str:
        """The answer to a command whose answer is one line. Raises BenchmarkError for the server's errors."""
        parts = [f"*{len(words)}\r\n".encode()]
        parts += [f"${len(word.encode())}\r\n{word}\r\n".encode() for word in words]
        self._socket.sendall(b"".join(parts))
        line = self._file.readline().decode().rstrip()
        if line[:1] not in "+:":
            raise BenchmarkError(f"Redis to {words[0]}: {line or 'gone'}")
        return line[1:]

    def length(self, key: str) -> int:
        """The length of a list."""
        return int(self.ask("LLEN", key))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@contextlib.contextmanager
def private_redis(work: Path) -> Iterator[Redis]:
    """A server of our own while the block runs. Raises BenchmarkError where Redis is not installed."""
    server = shutil.which("redis-server")
    if server is None:
        raise BenchmarkError("Redis is not installed: run benchmarks/setup")
    port = free_ports(1)[0]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(work)]
    with running([Command([server, *options])], work / "redis.log"):
        redis = _connected(port)
        try:
            yield redis
        finally:
            redis.close()


def _connected(port: int) -> Redis:
    deadline = time.monotonic() + 10
    while True:
        try:
            return Redis(port)
        except OSError:
            if time.monotonic() > deadline:
                raise BenchmarkError("Redis does not answer") from None
            time.sleep(0.05)
