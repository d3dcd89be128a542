"""The jobs of a chaos run. Each finished run leaves a line in the ledger, in one append: the evidence that counts."""

from __future__ import annotations

import asyncio
import os
import time

import amqpjobs
from amqpjobs import job


def _note(what: str) -> None:
    line = f"{what} {amqpjobs.current().jid}\n".encode()
    ledger = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, line)
    finally:
        os.close(ledger)


@job
def quick() -> None:
    _note("done")


@job
async def slow(seconds: float) -> None:
    await asyncio.sleep(seconds)
    _note("done")


@job
def threaded(seconds: float) -> None:
    time.sleep(seconds)
    _note("done")


@job(retry_delays=[0.5])
def recovers(times: int) -> None:
    """Fails so often, then succeeds."""
    if amqpjobs.current().attempt <= times:
        raise RuntimeError("not yet")
    _note("done")


@job(retry=1, retry_delays=[0.5])
def dies() -> None:
    raise RuntimeError("never")
