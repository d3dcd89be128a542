"""Where a product runs: its virtual host, Redis, folder; and how much of its queue is left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import Broker, Depths
from benchmarks.processes import BenchmarkError
from benchmarks.redis import Redis, private_redis


@dataclass(frozen=True, slots=True)
class Place:
    """One product's place while it is measured."""

    broker: Broker
    vhost: str
    depths: Depths
    redis: Redis | None
    work: Path
    log: Path

    @property
    def amqp(self) -> str:
        """The AMQP address of the product's virtual host."""
        return self.broker.url(self.vhost)

    @property
    def ticks(self) -> Path:
        """The file that the jobs which prove themselves write to."""
        return self.work / "ticks"

    @property
    def store(self) -> Redis:
        """Redis. Raises BenchmarkError where it is not installed."""
        if self.redis is None:
            raise BenchmarkError("Redis is not installed: run benchmarks/setup")
        return self.redis

    def environment(self) -> dict[str, str]:
        """What every product's programs are told."""
        port = {"BENCH_REDIS_PORT": str(self.redis.port)} if self.redis is not None else {}
        return {"BENCH_AMQP": self.amqp, "BENCH_TICKS": str(self.ticks), "BENCH_WORK": str(self.work), **port}

    def queue(self, name: str) -> Callable[[], int]:
        """How many messages of a queue of RabbitMQ nobody has taken."""
        return lambda: self.depths.ready(name)

    def lists(self, *keys: str) -> Callable[[], int]:
        """How many entries lists of Redis have."""
        return lambda: sum(self.store.length(key) for key in keys)


@contextlib.contextmanager
def place(broker: Broker, work: Path, name: str) -> Iterator[Place]:
    """A virtual host and a Redis for one product while the block runs."""
    with contextlib.ExitStack() as stack:
        vhost = stack.enter_context(broker.vhost())
        depths = Depths(broker.url(vhost))
        stack.callback(depths.close)
        redis = None
        with contextlib.suppress(BenchmarkError):
            redis = stack.enter_context(private_redis(work))
        folder = work / name
        folder.mkdir(exist_ok=True)
        yield Place(broker, vhost, depths, redis, folder, folder / "log")
