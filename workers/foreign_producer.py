"""A producer that is not ours: plain pika, written from docs/protocol.md, importing nothing of amqpjobs.

    python workers/foreign_producer.py --rate 4                 # a steady mix, until Ctrl-C
    python workers/foreign_producer.py --count 100 --rate 50 --mix quick=9,failing=1

`enqueue` and `schedule` are all that a producer needs; the rest of the file feeds `make demo`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

PERSISTENT = pika.BasicProperties(delivery_mode=2)
DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"


def enqueue(
    channel: BlockingChannel, job_class: str, args: list[Any], queue: str = "default", retry: int = 25, **more: Any
) -> str:
    """Put a job on a queue; its jid. `more` are optional fields, such as tags.

    On a channel in confirm mode it raises when the broker did not take the job.
    """
    jid = uuid.uuid4().hex
    job = {
        "jid": jid,
        "class": job_class,
        "args": args,
        "queue": queue,
        "retry": retry,
        "retry_count": 0,
        "enqueued_at": time.time(),
        **more,
    }
    channel.basic_publish("jobs.direct", queue, json.dumps(job), PERSISTENT, mandatory=True)
    return jid


def schedule(channel: BlockingChannel, job_class: str, args: list[Any], at: float, queue: str = "default") -> str:
    """Put a job on its queue at `at` (seconds since 1970); its jid."""
    jid = uuid.uuid4().hex
    entry = {
        "type": "scheduled_job",
        "jid": jid,
        "scheduled_at": at,
        "job": {"class": job_class, "args": args, "queue": queue, "retry": 25, "enqueued_at": time.time()},
    }
    channel.basic_publish("", "scheduled_jobs", json.dumps(entry), PERSISTENT, mandatory=True)
    return jid


# --- the demo's mix ---------------------------------------------------------------------------------------------------

PEOPLE = ("ada", "grace", "edsger", "barbara", "donald", "radia")
GREETINGS = ("Welcome!", "Your order is on its way", "Your invoice", "We have missed you")
REPORTS = ("sales", "stock", "returns", "visitors")

Send = Callable[[BlockingChannel, str], str]


def quick(channel: BlockingChannel, queue: str) -> str:
    if random.random() < 0.3:
        return enqueue(channel, "ProcessImageJob", [random.randint(1, 9999), round(random.uniform(0.1, 0.8), 2)], queue)
    return enqueue(channel, "SendEmailJob", [f"{random.choice(PEOPLE)}@example.com", random.choice(GREETINGS)], queue)


def slow(channel: BlockingChannel, queue: str) -> str:
    return enqueue(channel, "ReportJob", [random.choice(REPORTS), round(random.uniform(2, 8), 1)], queue)


def recovering(channel: BlockingChannel, queue: str) -> str:
    return enqueue(channel, "FlakyJob", [random.randint(1, 3)], queue, retry_delays=[2, 4, 8], tags=["flaky"])


def dying(channel: BlockingChannel, queue: str) -> str:
    if random.random() < 0.5:
        return enqueue(channel, "RejectedJob", [round(random.uniform(-50, 0), 2)], queue)
    reason = f"order {random.randint(1, 9999)} does not exist"
    return enqueue(channel, "DoomedJob", [reason], queue, retry=1, retry_delays=[5])


def scheduled(channel: BlockingChannel, queue: str) -> str:
    return schedule(channel, "SendReminderJob", [random.randint(1, 9999)], time.time() + random.uniform(3, 30), queue)


KINDS: dict[str, tuple[Send, float]] = {
    "quick": (quick, 12.0),
    "slow": (slow, 2.0),
    "recovering": (recovering, 1.5),
    "dying": (dying, 0.3),
    "scheduled": (scheduled, 2.0),
}
"""Kinds of jobs and their shares in the mix."""


def read_mix(text: str) -> dict[str, float]:
    """`quick=9,dying=1` as shares by kind."""
    mix = {}
    for part in text.split(","):
        kind, _, share = part.partition("=")
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"{kind!r} is none of {', '.join(KINDS)}")
        try:
            mix[kind] = float(share or 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{share!r} is no number") from None
    return mix


def feed(url: str, rate: float, count: int | None, mix: dict[str, float], queue: str) -> int:
    """Send `count` jobs (None: for ever), `rate` a second; a broker that goes away is awaited. How many were sent."""
    kinds, shares = list(mix), list(mix.values())
    sent, due = 0, time.monotonic()
    while count is None or sent < count:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(url))
            channel = connection.channel()
            channel.confirm_delivery()
            while count is None or sent < count:
                connection.sleep(max(0.0, due - time.monotonic()))
                KINDS[random.choices(kinds, shares)[0]][0](channel, queue)
                sent += 1
                due = max(due + 1 / rate, time.monotonic() - 1)
            connection.close()
        except (pika.exceptions.AMQPError, OSError) as error:
            print(f"producer: {error!r}; trying again in a second", file=sys.stderr, flush=True)
            time.sleep(1)
    return sent


def main() -> int:
    parser = argparse.ArgumentParser(description="A producer in plain pika.")
    parser.add_argument("--url", default=os.environ.get("AMQPJOBS_URL", DEFAULT_URL))
    parser.add_argument("--rate", type=float, default=4.0, help="jobs a second (default: 4)")
    parser.add_argument("--count", type=int, default=None, help="stop after so many (default: never)")
    parser.add_argument("--queue", default="default")
    parser.add_argument(
        "--mix",
        type=read_mix,
        default={kind: share for kind, (_, share) in KINDS.items()},
        help="kinds and their shares, such as quick=9,dying=1; kinds: " + ", ".join(KINDS),
    )
    options = parser.parse_args()
    print(f"producer: {options.rate:g} jobs a second to {options.queue}: {', '.join(options.mix)}", flush=True)
    try:
        sent = feed(options.url, options.rate, options.count, options.mix, options.queue)
    except KeyboardInterrupt:
        return 0
    print(f"producer: sent {sent}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
