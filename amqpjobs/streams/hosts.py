"""The brokers that an address names, tried in turn until one takes us: what all drivers share of connecting."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from amqpjobs import addresses
from amqpjobs.addresses import Address, AddressError
from amqpjobs.settings import Settings
from amqpjobs.streams import tls
from amqpjobs.streams.errors import BrokerError, BrokerUnavailable, Refused
from amqpjobs.streams.port import Connection

ALONE_SECONDS = 10.0
NEXT_SECONDS = 5.0
"""Patience with each of several brokers: the next one may answer at once."""

Opener = Callable[[Address, ssl.SSLContext | None], Awaitable[Connection]]
"""Opens a connection to one broker. Raises BrokerError with `address.shown` in its text, OSError, ssl.SSLError."""


async def in_turn(settings: Settings, opener: Opener) -> Connection:
    """A connection to the first broker that takes one.

    Raises BrokerUnavailable or Refused, with the reasons of all of them.
    """
    try:
        brokers = addresses.brokers(settings.url)
    except AddressError as error:
        raise Refused(f"AMQPJOBS_URL: {error}") from None
    patience = ALONE_SECONDS if len(brokers) == 1 else NEXT_SECONDS
    failures: list[BrokerError] = []
    for address in brokers:
        try:
            return await _one(settings, address, opener, patience)
        except BrokerError as error:
            failures.append(error)
    # What a person must put right counts for more than what time may bring.
    worst = next((error for error in failures if isinstance(error, Refused)), failures[0])
    raise type(worst)("; ".join(map(str, failures))) from worst


async def _one(settings: Settings, address: Address, opener: Opener, patience: float) -> Connection:
    try:
        async with asyncio.timeout(patience):
            context = await asyncio.to_thread(tls.context, settings) if address.secure else None
            return await opener(address, context)
    except TimeoutError:
        raise BrokerUnavailable(f"{address.shown} did not answer in time") from None
    except ssl.SSLError as error:
        raise Refused(tls.failure(error, address.shown)) from error
    except OSError as error:
        raise BrokerUnavailable(f"cannot reach {address.shown}: {error.strerror or error}") from error
