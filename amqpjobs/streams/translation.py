"""The one place where the driver's exceptions become ours."""

from __future__ import annotations

import asyncio
import struct

import aiormq

from amqpjobs.streams import errors

_REFUSALS: tuple[tuple[type[BaseException], type[errors.BrokerError]], ...] = (
    (aiormq.PublishError, errors.Unroutable),
    (aiormq.DeliveryError, errors.Nacked),
    (aiormq.ChannelAccessRefused, errors.AccessRefused),
    (aiormq.ChannelLockedResource, errors.AccessRefused),
    (aiormq.ChannelPreconditionFailed, errors.PreconditionFailed),
    (aiormq.ProbableAuthenticationError, errors.AccessRefused),
    (aiormq.AuthenticationError, errors.AccessRefused),
    # What the codec cannot write (a 300-byte name, an integer over 64 bits in a header) fails again each time.
    (ValueError, errors.Refused),
    (TypeError, errors.Refused),
    (OverflowError, errors.Refused),
    (struct.error, errors.Refused),
)


def translated(error: BaseException) -> errors.BrokerError:
    """Our exception for one that the driver raised or ended with; anything that is no refusal is a lost connection."""
    if isinstance(error, errors.BrokerError):
        return errors.again(error)
    if isinstance(error, aiormq.ChannelNotFoundEntity):
        return errors.missing(_text(error))
    for theirs, ours in _REFUSALS:
        if isinstance(error, theirs):
            return ours(_text(error))
    return errors.ConnectionLost(_text(error))


def connect_failure(error: BaseException, address: str) -> errors.BrokerError:
    """Our exception for a connection that could not be opened; `address` is shown and must hold no credentials."""
    text = _text(error)
    if isinstance(error, (aiormq.ProbableAuthenticationError, aiormq.AuthenticationError)):
        return errors.AccessRefused(f"{address} refuses the user or password: check AMQPJOBS_URL")
    # The driver does not tell the reason of a close that answers `connection.open`, only that there was one.
    if isinstance(error, aiormq.InvalidFrameError) and "Connection.OpenOk" in text and "Connection.Close" in text:
        return errors.AccessRefused(f"{address}: no such virtual host, or no access to it: check AMQPJOBS_URL")
    return errors.BrokerUnavailable(f"cannot reach {address}: {text}")


def _text(error: BaseException) -> str:
    if isinstance(error, aiormq.PublishError):
        return f"no queue is bound for key {error.args[1]!r}: {error.args[0]}"
    if isinstance(error, asyncio.CancelledError):
        return "the connection ended"
    texts = [str(part) for part in error.args if part not in (None, "", 0)]
    return " ".join(texts) or type(error).__name__
