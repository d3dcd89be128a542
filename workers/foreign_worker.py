"""A worker that is not ours: plain pika, written from docs/protocol.md, importing nothing of amqpjobs.

    python workers/foreign_worker.py -q default -c 4

It runs each job in a thread, so a slow handler holds up neither the heartbeats nor the connection; everything that
touches the connection happens on the main thread. A job's `timeout` is not enforced: a Python thread cannot be stopped.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import re
import secrets
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"
VERSION = "1.0.0"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
MONTH = 30 * 86400.0
BEAT_EVERY = 10.0

Handler = Callable[..., object]


# --- sample handlers -------------------------------------------------------------------------------------------------


def send_email(address: str, message: str = "") -> None:
    if "@" not in address:
        raise ValueError(f"{address!r} is no address")


_tries: Counter[str] = Counter()


def recover(token: str, failures: int = 1) -> None:
    """Fails so many times, then succeeds."""
    _tries[token] += 1
    if _tries[token] <= failures:
        raise ConnectionError(f"{token}: try {_tries[token]} failed")


def sleep_for(seconds: float) -> None:
    time.sleep(seconds)


HANDLERS: dict[str, Handler] = {"SendEmailJob": send_email, "RecoverJob": recover, "SleepJob": sleep_for}


# --- reading what others wrote (section 7) ----------------------------------------------------------------------------


class NotAJob(Exception):
    """Why a message cannot be run; it goes to `dead_jobs` as it came."""


@dataclass(frozen=True)
class Job:
    """A job as this worker understands it; `sent` is the object as it came, which is what travels on."""

    sent: dict[str, Any]
    jid: str
    job_class: str
    args: list[Any] | dict[str, Any]
    queue: str
    retry: int
    retry_count: int
    enqueued_at: float | None


def read_job(body: bytes, queue: str, message_id: str | None) -> Job:
    try:
        sent = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotAJob(f"not JSON: {error}") from None
    if not isinstance(sent, dict):
        raise NotAJob(f"a job is an object, not a {type(sent).__name__}")
    if not isinstance(sent.get("class"), str) or not sent["class"]:
        raise NotAJob("no class")
    args = [] if sent.get("args") is None else sent["args"]
    if not isinstance(args, list | dict):
        raise NotAJob("args is neither a list nor an object")
    return Job(
        sent=sent,
        jid=name(sent.get("jid")) or message_id or secrets.token_hex(12),
        job_class=sent["class"],
        args=args,
        queue=name(sent.get("queue")) or queue,
        retry=whole(sent.get("retry"), 25),
        retry_count=whole(sent.get("retry_count"), 0),
        enqueued_at=number(sent.get("enqueued_at")),
    )


def name(value: object) -> str | None:
    """A string that is not empty; a number is its digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return value if isinstance(value, str) and value else None


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        read = float(value)
    except OverflowError:
        return None
    return read if abs(read) < float("inf") else None


def whole(value: object, default: int) -> int:
    """A count between 0 and 1000: the whole part of a number, also one in text; false is none."""
    if value is False:
        return 0
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", value, re.ASCII) else None
    if value is True or not isinstance(value, int | float) or (isinstance(value, float) and math.isnan(value)):
        return default
    return int(max(0, min(1000, value)))


def expired(job: Job) -> bool:
    """Whether it waited in its queue for longer than it may."""
    limit = number(job.sent.get("expires_in"))
    return bool(limit and limit > 0 and job.enqueued_at is not None and time.time() > job.enqueued_at + limit)


def backoff(job: Job) -> float:
    """Seconds until the next try (section 6)."""
    count, sent = job.retry_count, job.sent
    delays = sent.get("retry_delays")
    if isinstance(delays, list) and delays:
        delay = number(delays[min(count, len(delays) - 1)]) or 0.0
    elif (least := number(sent.get("min_backoff"))) is not None or number(sent.get("max_backoff")) is not None:
        most = number(sent.get("max_backoff"))
        delay = min((1.0 if least is None else least) * 2.0 ** min(count, 64), MONTH if most is None else most)
    else:
        delay = count**4 + 15 + random.uniform(0, 30 * (count + 1))
    return max(0.0, min(MONTH, delay))


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    error_class: str
    message: str
    backtrace: str


@dataclass
class Delivery:
    job: Job
    tag: int
    properties: pika.BasicProperties
    started_at: float = field(default_factory=time.time)


def run(handlers: dict[str, Handler], job: Job) -> Failure | None:
    """Run the handler; None when it did not raise. BaseException: a handler's sys.exit() is one failed try."""
    try:
        handler = handlers.get(job.job_class)
        if handler is None:
            return Failure("UnknownJobClass", f"no handler for {job.job_class!r}", "")
        handler(**job.args) if isinstance(job.args, dict) else handler(*job.args)
    except BaseException as error:
        return Failure(type(error).__name__, worded(error), "".join(traceback.format_tb(error.__traceback__)))
    return None


def worded(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as worse:
        return f"str() of it raised {type(worse).__name__}"


class Session:
    """One connection's life: consumes, runs, records. What is unacked when it is lost comes again to somebody."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.busy: dict[int, Delivery] = {}
        self.pool = ThreadPoolExecutor(worker.concurrency)
        self.connection = pika.BlockingConnection(worker.parameters)
        self.incoming = self.connection.channel()
        self.outgoing = self.connection.channel()
        self.outgoing.confirm_delivery()
        self.beat("running")
        self.incoming.basic_qos(prefetch_count=worker.concurrency)
        self.tags = [self.consume(queue) for queue in worker.queues]

    def consume(self, queue: str) -> Any:
        ensure_queue(self.connection, queue)
        return self.incoming.basic_consume(f"queue.{queue}", partial(self.on_delivery, queue))

    def serve(self) -> None:
        """Until the worker is told to stop: then finish what runs, within the timeout."""
        while not self.worker.stopping:
            self.connection.process_data_events(time_limit=0.2)
        for tag in self.tags:
            self.incoming.basic_cancel(tag)
        self.send("heartbeats", self.worker.heartbeat("stopping", list(self.busy.values())))
        deadline = time.monotonic() + self.worker.timeout
        while self.busy and time.monotonic() < deadline:
            self.connection.process_data_events(time_limit=0.1)
        self.send("heartbeats", self.worker.heartbeat("stopped", []))
        self.connection.close()

    def beat(self, state: str) -> None:
        if not self.worker.stopping:
            self.send("heartbeats", self.worker.heartbeat(state, list(self.busy.values())))
            self.connection.call_later(BEAT_EVERY, partial(self.beat, state))

    def send(self, stream: str, entry: dict[str, Any]) -> None:
        """Append to a stream; returns once it is confirmed. Raises when it was returned, refused or lost."""
        self.outgoing.basic_publish("", stream, json.dumps(entry), PERSISTENT, mandatory=True)

    def on_delivery(
        self, queue: str, _: BlockingChannel, deliver: Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        try:
            job = read_job(body, queue, properties.message_id)
        except NotAJob as error:
            self.bury_unread(deliver.delivery_tag, body, queue, error)
            return
        if expired(job):
            self.incoming.basic_ack(deliver.delivery_tag)
            self.worker.say(f"{job.jid} {job.job_class} expired")
            return
        delivery = Delivery(job, deliver.delivery_tag, properties)
        self.busy[delivery.tag] = delivery
        self.pool.submit(self.work, delivery)

    def work(self, delivery: Delivery) -> None:
        """In a thread of the pool: run, and hand the outcome to the thread that owns the connection."""
        failure = run(self.worker.handlers, delivery.job)
        ended = time.time()
        try:
            self.connection.add_callback_threadsafe(partial(self.on_end, delivery, failure, ended))
        except pika.exceptions.ConnectionWrongStateError:
            self.worker.say(f"{delivery.job.jid} ended after its connection was lost: the broker gives it again")

    def on_end(self, delivery: Delivery, failure: Failure | None, ended: float) -> None:
        """The order is the point: what happened is confirmed by the broker before the job is acked."""
        job = delivery.job
        if failure is not None:
            self.record(delivery, failure, ended)
        self.send("job_metrics", self.worker.metric(delivery, failure, ended))
        self.incoming.basic_ack(delivery.tag)
        del self.busy[delivery.tag]
        outcome = "success" if failure is None else f"failed: {failure.error_class}: {failure.message}"
        self.worker.say(f"{job.jid} {job.job_class} retry_count={job.retry_count} {outcome}")

    def record(self, delivery: Delivery, failure: Failure, ended: float) -> None:
        job = delivery.job
        entry: dict[str, Any] = {
            "jid": job.jid,
            "failed_at": ended,
            "error_class": failure.error_class,
            "error_message": failure.message,
            "backtrace": failure.backtrace,
            "worker_identity": self.worker.identity,
            "properties": kept(delivery.properties),
            "job": job.sent | {"queue": job.queue},
        }
        if job.retry_count < job.retry:
            due = {"type": "retry", "retry_at": ended + backoff(job), "retry_count": job.retry_count + 1}
            self.send("retries", entry | due | {"attempt": job.retry_count + 1})
        elif job.sent.get("dead") is not False:
            self.send("dead_jobs", entry | {"type": "dead_job", "died_at": ended, "retry_count": job.retry_count})

    def bury_unread(self, tag: int, body: bytes, queue: str, error: NotAJob) -> None:
        entry: dict[str, Any] = {
            "type": "dead_job",
            "jid": secrets.token_hex(12),
            "died_at": time.time(),
            "retry_count": 0,
            "error_class": "Malformed",
            "error_message": str(error),
            "worker_identity": self.worker.identity,
            "queue": queue,
        }
        try:
            entry["raw"] = body.decode("utf-8")
        except UnicodeDecodeError:
            entry["raw_base64"] = base64.b64encode(body).decode("ascii")
        self.send("dead_jobs", entry)
        self.incoming.basic_ack(tag)


def kept(properties: pika.BasicProperties) -> dict[str, Any]:
    """What of a delivery's properties must be there again when the job is released."""
    scalars = {
        name: value
        for name, value in (properties.headers or {}).items()
        if isinstance(value, str | int | float | bool) and not name.startswith("x-")
    }
    found = {"priority": properties.priority, "correlation_id": properties.correlation_id, "headers": scalars}
    return {name: value for name, value in found.items() if value not in (None, {})}


def ensure_queue(connection: pika.BlockingConnection, queue: str) -> None:
    """Passive first: a queue that exists is good as it is. A 404 closes the channel, hence two."""
    asking = connection.channel()
    try:
        asking.queue_declare(f"queue.{queue}", passive=True)
        asking.close()
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code != 404:
            raise
        arguments = {"x-max-priority": 10, "x-queue-type": "classic"}
        making = connection.channel()
        making.queue_declare(f"queue.{queue}", durable=True, arguments=arguments)
        making.queue_bind(f"queue.{queue}", "jobs.direct", queue)
        making.close()


class Worker:
    """Queues, handlers and who we are; `main_loop` serves one connection after the other until it is told to stop."""

    def __init__(
        self, url: str, queues: list[str], handlers: dict[str, Handler], concurrency: int = 4, timeout: float = 25.0
    ) -> None:
        self.parameters = pika.URLParameters(url)
        self.parameters.heartbeat = 10
        self.queues = queues
        self.handlers = handlers
        self.concurrency = concurrency
        self.timeout = timeout
        self.hostname = socket.gethostname()
        self.identity = f"{self.hostname}:{os.getpid()}:foreign"
        self.nonce = secrets.token_hex(6)
        self.booted = time.time()
        self.stopping = False

    def main_loop(self) -> None:
        pause = 0.5
        while not self.stopping:
            try:
                session = Session(self)
                self.say(f"ready: {', '.join(self.queues)}, {self.concurrency} at once")
                pause = 0.5
                session.serve()
            except (pika.exceptions.AMQPError, OSError) as error:
                self.say(f"broker: {error!r}; again in {pause:g} s")
                time.sleep(pause)
                pause = min(5.0, pause * 2)

    def say(self, line: str) -> None:
        print(f"foreign worker: {line}", flush=True)

    def heartbeat(self, state: str, busy: list[Delivery]) -> dict[str, Any]:
        running = [
            {"jid": d.job.jid, "class": d.job.job_class, "queue": d.job.queue, "started_at": d.started_at} for d in busy
        ]
        return {
            "type": "heartbeat",
            "identity": self.identity,
            "nonce": self.nonce,
            "hostname": self.hostname,
            "pid": os.getpid(),
            "tag": "foreign",
            "concurrency": self.concurrency,
            "busy": len(busy),
            "beat": time.time(),
            "boot_at": self.booted,
            "rss_kb": resident_kb(),
            "queues": self.queues,
            "version": VERSION,
            "state": state,
            "running": running,
        }

    def metric(self, delivery: Delivery, failure: Failure | None, ended: float) -> dict[str, Any]:
        job = delivery.job
        waited = None if job.enqueued_at is None else max(0.0, delivery.started_at - job.enqueued_at) * 1000
        return {
            "type": "job_metric",
            "timestamp": ended,
            "jid": job.jid,
            "job_class": job.job_class,
            "queue": job.queue,
            "duration_ms": max(0.0, ended - delivery.started_at) * 1000,
            "status": "success" if failure is None else "failed",
            "worker_identity": self.identity,
            "attempt": job.retry_count + 1,
            "wait_ms": waited,
            "error_class": None if failure is None else failure.error_class,
            "code_version": VERSION,
        }


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
    worker = Worker(options.url, options.queue or ["default"], HANDLERS, options.concurrency, options.timeout)

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
