"""What a handler may know, and the handlers by class."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from workers.python.job import Job

Handler = Callable[..., object]
"""Called with a Context and the arguments: positional, or by name."""


class Cancelled(Exception):
    """Raised by a handler that noticed that its job was cancelled."""


@dataclass
class Context:
    """What a handler may know: its job, and whether somebody wants it to stop."""

    job: Job
    cancelled: threading.Event = field(default_factory=threading.Event)


def echo(context: Context, *_: object, **__: object) -> None:
    with Path(os.environ["OUT"]).open("a", encoding="utf-8") as out:
        out.write(json.dumps(context.job.args) + "\n")


def fail(context: Context, *_: object, **__: object) -> None:
    raise RuntimeError("this job always fails")


def flaky(context: Context, failures: int) -> None:
    if context.job.retry_count < failures:
        raise ConnectionError(f"run {context.job.retry_count + 1} fails")


def slow(context: Context, seconds: float) -> None:
    if context.cancelled.wait(seconds):
        raise Cancelled


HANDLERS: dict[str, Handler] = {"echo": echo, "fail": fail, "flaky": flaky, "slow": slow}
