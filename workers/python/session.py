"""One connection of the worker.

It runs each job in a thread, so a slow handler holds up neither the heartbeats nor the connection; everything that
touches the connection happens on the main thread. A Python thread cannot be stopped: `timeout` is not enforced, and a
job that is cancelled while it runs ends when its handler looks (`context.cancelled`).
"""

from __future__ import annotations

import json
import secrets
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from workers.python.controls import ControlsReader
from workers.python.handlers import HANDLERS, Context
from workers.python.job import (
    TRACKED,
    Failure,
    Job,
    NotAJob,
    expired,
    failed,
    metric,
    read_job,
    tracked,
    unreadable,
)

if TYPE_CHECKING:
    from workers.python.worker import Worker

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BEAT_EVERY = 10.0


@dataclass
class Delivery:
    queue: str
    tag: int
    properties: pika.BasicProperties
    body: bytes


@dataclass
class Run:
    job: Job
    delivery: Delivery
    context: Context
    started_at: float = field(default_factory=time.time)


def attempt(context: Context) -> Failure | None:
    """Run the handler; None when it did not raise. BaseException: a handler's sys.exit() is one failed run."""
    job = context.job
    try:
        if tracked(job):
            return Failure("Tracked", TRACKED, "")
        handler = HANDLERS.get(job.job_class)
        if handler is None:
            return Failure("UnknownJobClass", f"no handler for {job.job_class!r}", "")
        handler(context, **job.args) if isinstance(job.args, dict) else handler(context, *job.args)
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
        self.running: dict[int, Run] = {}  # by delivery tag
        self.waiting: list[Delivery] = []  # delivered, not started
        self.consumers: dict[str, Any] = {}  # by queue
        self.marker = secrets.token_hex(12)
        self.caught_up = False
        self.told = ""
        self.pool = ThreadPoolExecutor(worker.concurrency)
        self.connection = pika.BlockingConnection(worker.parameters)
        # Two channels: a mistake closes a channel, and with the consuming one go all its unacked deliveries.
        self.incoming = self.connection.channel()
        self.incoming.basic_qos(prefetch_count=worker.concurrency)  # for each consumer
        self.incoming.add_on_cancel_callback(lambda _: self.lose(ConnectionError("a queue was deleted")))
        self.outgoing = self.connection.channel()
        self.outgoing.confirm_delivery()
        self.reader = ControlsReader(
            worker.parameters,
            lambda: self.hand(self.mark),
            lambda body, offset: self.hand(partial(self.on_controls, body, offset)),
            lambda error: self.hand(partial(self.lose, error)),
        )

    def serve(self) -> None:
        """Until the worker is told to stop: then give back what has not begun, finish what runs, say goodbye."""
        try:
            self.beat_regularly()
            self.worker.controls.last = -1  # offsets may begin again
            self.reader.start()
            while not self.worker.stopping:
                self.connection.process_data_events(time_limit=0.2)
            self.obey()
            deadline = time.monotonic() + self.worker.timeout
            while self.running and time.monotonic() < deadline:
                self.connection.process_data_events(time_limit=0.1)
            self.beat("stopped")
            self.connection.close()
        finally:
            self.reader.over = True

    def hand(self, call: Callable[[], None]) -> None:
        """From another thread: do this on the one that owns the connection, if there is one still."""
        with suppress(pika.exceptions.ConnectionWrongStateError):
            self.connection.add_callback_threadsafe(call)

    def lose(self, error: Exception) -> None:
        raise error

    def beat_regularly(self) -> None:
        if not self.worker.stopping:
            self.beat(self.worker.state)
            self.connection.call_later(BEAT_EVERY, self.beat_regularly)

    def beat(self, state: str) -> None:
        self.told = state
        self.send("heartbeats", json.dumps(self.worker.heartbeat(state, list(self.running.values()))))

    def send(self, stream: str, entry: str) -> None:
        """Append to a stream; returns once it is confirmed. Raises when it was returned, refused or lost."""
        self.outgoing.basic_publish("", stream, entry, PERSISTENT, mandatory=True)

    # What operators want.

    def mark(self) -> None:
        """An entry of a type that nobody knows: when it comes back, everything before it has been read.

        Only now that `controls` is consumed: a reader that a stream gets while its first entry is written may miss it.
        """
        self.send("controls", json.dumps({"type": "marker", "nonce": self.marker}))

    def on_controls(self, body: bytes, offset: int) -> None:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return  # it concerns nobody
        for entry in value if isinstance(value, list) else [value]:
            with suppress(KeyError, TypeError, ValueError, AttributeError):  # nor does what is not well formed
                self.worker.controls.apply(entry, offset)
            if isinstance(entry, dict) and entry.get("nonce") == self.marker:
                self.caught_up = True
                self.worker.say(f"ready: {', '.join(self.worker.queues)}, {self.worker.concurrency} at once")
        if self.caught_up:  # before that, a pause may be one that was resumed since
            self.obey()

    def obey(self) -> None:
        """Make what is consumed and what runs agree with what is ordered."""
        controls = self.worker.controls
        self.worker.stopping |= controls.stop
        for run in self.running.values():
            if run.job.jid in controls.cancelled:
                run.context.cancelled.set()
        for queue in self.worker.queues:
            if self.worker.wants(queue) and queue not in self.consumers:
                self.consumers[queue] = self.consume(queue)
            elif not self.worker.wants(queue) and queue in self.consumers:
                self.incoming.basic_cancel(self.consumers.pop(queue))
        self.start_next()
        if self.told != self.worker.state:
            self.beat(self.worker.state)

    def consume(self, queue: str) -> Any:
        ensure_queue(self.connection, queue)

        def take(_: BlockingChannel, deliver: Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
            self.waiting.append(Delivery(queue, deliver.delivery_tag, properties, body))
            self.start_next()

        return self.incoming.basic_consume(f"queue.{queue}", take)

    # Jobs.

    def start_next(self) -> None:
        waiting, self.waiting = self.waiting, []
        for delivery in waiting:
            if not self.worker.wants(delivery.queue):  # it goes back to where it was
                self.incoming.basic_nack(delivery.tag)
            elif len(self.running) < self.worker.concurrency:
                self.start(delivery)
            else:
                self.waiting.append(delivery)

    def start(self, delivery: Delivery) -> None:
        try:
            job = read_job(delivery.body, delivery.queue, delivery.properties.message_id)
        except NotAJob as error:
            self.send("dead_jobs", unreadable(delivery.body, delivery.queue, error, self.worker.identity))
            self.incoming.basic_ack(delivery.tag)
            return
        run = Run(job, delivery, Context(job))
        if job.jid in self.worker.controls.cancelled:
            self.settle(run, "cancelled")
        elif expired(job):
            self.settle(run, "expired")
        else:
            self.running[delivery.tag] = run
            self.worker.say(f"{job.jid} {job.job_class} starts")
            self.pool.submit(self.work, run)

    def work(self, run: Run) -> None:
        """In a thread of the pool: run, and hand the outcome to the thread that owns the connection."""
        failure = attempt(run.context)
        self.hand(partial(self.on_end, run, failure))

    def on_end(self, run: Run, failure: Failure | None) -> None:
        del self.running[run.delivery.tag]
        status = "success" if failure is None else "failed"
        if failure is not None and run.context.cancelled.is_set():
            status = "cancelled"  # what fails after it was told to stop has stopped: it is not tried again
        self.settle(run, status, failure)
        self.start_next()

    def settle(self, run: Run, status: str, failure: Failure | None = None) -> None:
        """The order is the point: what happened is confirmed by the broker before the job is acked."""
        job, ended = run.job, time.time()
        identity = self.worker.identity
        if status == "failed" and failure is not None:
            outcome = failed(job, failure, ended, identity, run.delivery.properties)
            if outcome is not None:
                self.send(*outcome)
        error_class = failure.error_class if failure else None
        self.send("job_metrics", metric(job, status, run.started_at, ended, identity, error_class=error_class))
        self.incoming.basic_ack(run.delivery.tag)
        why = f": {failure.error_class}: {failure.message}" if status == "failed" and failure else ""
        self.worker.say(f"{job.jid} {job.job_class} retry_count={job.retry_count} {status}{why}")


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
