"""Sample jobs: quick and slow ones, failures that recover and failures that die.

python -m amqpjobs.worker -A workers.demo
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any

from amqpjobs import Fail, current, job

log = logging.getLogger(__name__)


@job
def add(a: float, b: float) -> float:
    """Quick, in a thread."""
    log.info("%s + %s = %s", a, b, a + b)
    return a + b


@job(name="SendEmailJob", queue="default")
async def send_email(address: str, message: str = "", *more: Any) -> None:
    """Quick, on the event loop, and under the name that the specification's samples use."""
    await asyncio.sleep(random.uniform(0.005, 0.05))
    log.info("mail to %s: %s", address, message)


@job(name="SendReminderJob")
async def send_reminder(user_id: int) -> None:
    """What the specification's samples schedule."""
    await asyncio.sleep(0.01)
    log.info("reminded user %s", user_id)


@job(name="ProcessImageJob")
def process_image(image_id: int, seconds: float = 0.5) -> None:
    """Some work in a thread."""
    time.sleep(seconds)
    log.info("image %s is processed", image_id)


@job(name="ReportJob", timeout=60)
async def report(name: str = "report", seconds: float = 5.0) -> None:
    """Slow: takes seconds, so that the dashboard has something to show as busy."""
    await asyncio.sleep(seconds)
    log.info("%s is ready after %.1f s", name, seconds)


@job(name="FlakyJob", retry_delays=[2, 4, 8])
def flaky(failures: int = 1) -> str:
    """Fails its first tries, then recovers: the usual life of a job that talks to somebody else's server."""
    attempt = current().attempt
    if attempt <= failures:
        raise ConnectionError(f"the other side did not answer (try {attempt})")
    return f"done at try {attempt}"


@job(name="DoomedJob", retry=1, retry_delays=[3])
def doomed(reason: str = "the record does not exist") -> None:
    """Always fails: after its one retry it is among the dead."""
    raise LookupError(reason)


@job(name="RejectedJob")
async def rejected(amount: float = 0) -> None:
    """Knows that another try is no use: dead at once."""
    raise Fail(f"{amount} is no amount that can be charged")
