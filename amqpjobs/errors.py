"""What a handler may raise to steer its job, and what enqueueing and running may raise.

Errors of the broker, or of the way to it, are in `amqpjobs.streams.errors`.
"""

from __future__ import annotations

from datetime import timedelta


class Retry(Exception):
    """Raised by a handler: this try failed, run the job again. It counts as a failed try.

    `in_` is the delay in seconds (or a timedelta); without it the job's own backoff holds.
    """

    def __init__(
        self, message: str = "retry asked for by the handler", *, in_: float | timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.in_ = seconds(in_)


class Fail(Exception):
    """Raised by a handler: this failure is final; the job is dead at once, whatever tries are left."""

    def __init__(self, message: str = "given up by the handler") -> None:
        super().__init__(message)


class Snooze(Exception):
    """Raised by a handler: not now, run the job again in `in_` seconds (or a timedelta). It counts as no try."""

    def __init__(self, in_: float | timedelta) -> None:
        self.in_: float = seconds(in_) or 0.0
        super().__init__(f"snoozed for {self.in_:g} s")


class UnknownJobClass(LookupError):
    """No function has the job's class as its name in this worker. A later deploy may bring it: retried as any error."""


class JobTimeout(Exception):
    """The job ran longer than its `timeout`."""


def seconds(value: float | timedelta | None) -> float | None:
    """A delay as seconds. Raises TypeError for what is no number or timedelta, ValueError for NaN and infinities."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a delay is a number of seconds or a timedelta, not a {type(value).__name__}")
    number = float(value)
    if not -1e15 < number < 1e15:
        raise ValueError(f"{value!r} seconds is not a delay")
    return number
