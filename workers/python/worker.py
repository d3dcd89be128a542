"""A worker that is not ours: plain pika, written from docs/protocol.md, importing nothing of amqpjobs.

python -m workers.python.worker -q default -c 4
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pika
import pika.exceptions

from workers.python.controls import Controls
from workers.python.job import VERSION
from workers.python.session import Run, Session

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"


class Worker:
    """Queues and who we are; `main_loop` serves one connection after the other until it is told to stop."""

    def __init__(self, url: str, queues: list[str], concurrency: int = 4, timeout: float = 25.0) -> None:
        self.parameters = pika.URLParameters(url)
        self.parameters.heartbeat = 10
        self.queues = queues
        self.concurrency = concurrency
        self.timeout = timeout
        self.hostname = socket.gethostname()
        self.identity = f"{self.hostname}:{os.getpid()}:pika"
        self.parameters.client_properties = {"connection_name": f"python worker {self.identity}"}
        self.nonce = secrets.token_hex(6)
        self.boot_at = time.time()
        self.controls = Controls({self.identity, self.nonce}, self.boot_at)
        self.stopping = False

    def wants(self, queue: str) -> bool:
        """Whether to take jobs of a queue."""
        return not (self.stopping or self.controls.quiet or queue in self.controls.paused)

    @property
    def paused(self) -> list[str]:
        return [queue for queue in self.queues if queue in self.controls.paused]

    @property
    def state(self) -> str:
        if self.stopping:
            return "stopping"
        if self.controls.quiet:
            return "quiet"
        return f"paused: {', '.join(self.paused)}" if self.paused else "running"

    def main_loop(self) -> None:
        pause = 0.25
        while not self.stopping:
            began = time.monotonic()
            try:
                Session(self).serve()
            except (pika.exceptions.AMQPError, OSError) as error:
                pause = 0.5 if time.monotonic() > began + 10 else min(5.0, pause * 2)
                self.say(f"broker: {error!r}; again in {pause:g} s")
                time.sleep(pause)

    def say(self, line: str) -> None:
        print(f"python worker: {line}", flush=True)

    def heartbeat(self, state: str, runs: list[Run]) -> dict[str, Any]:
        running = [
            {"jid": run.job.jid, "class": run.job.job_class, "queue": run.job.queue, "started_at": run.started_at}
            for run in runs
        ]
        return {
            "type": "heartbeat",
            "identity": self.identity,
            "nonce": self.nonce,
            "hostname": self.hostname,
            "pid": os.getpid(),
            "tag": "pika",
            "concurrency": self.concurrency,
            "busy": len(running),
            "beat": time.time(),
            "boot_at": self.boot_at,
            "rss_kb": resident_kb(),
            "queues": self.queues,
            "version": VERSION,
            "state": state,
            "running": running,
        } | ({"paused": self.paused} if self.paused else {})


def resident_kb() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except (OSError, ValueError):
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A worker in plain pika.")
    parser.add_argument("--url", default=os.environ.get("AMQPJOBS_URL", DEFAULT_URL))
    parser.add_argument("-q", "--queue", action="append", metavar="NAME")
    parser.add_argument("-c", "--concurrency", type=int, default=4, metavar="N")
    parser.add_argument("-t", "--timeout", type=float, default=25.0, metavar="SECONDS")
    options = parser.parse_args()
    worker = Worker(options.url, options.queue or ["default"], options.concurrency, options.timeout)

    def stop(*_: object) -> None:
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    worker.main_loop()
    # A handler that is past its time keeps its thread, and an ordinary exit would wait for that.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
