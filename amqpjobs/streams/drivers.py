"""Which driver stands behind the port. Both pass tests/conformance; a setting chooses."""

from __future__ import annotations

from amqpjobs.settings import Settings
from amqpjobs.streams.port import Connection


async def connect(settings: Settings, *, name: str) -> Connection:
    """Open a connection with the driver that the settings name; `name` is what the broker's management shows.

    Raises BrokerUnavailable (nobody there, or not ready), AccessRefused (user, password, a virtual host that is missing
    or closed to the user), Refused (an address that cannot be read).
    """
    if settings.driver == "lean":
        from amqpjobs.streams.lean import connection as lean  # noqa: PLC0415 - each driver costs start time

        return await lean.connect(settings, name=name)
    from amqpjobs.streams import aio  # noqa: PLC0415 - each driver costs start time

    return await aio.connect(settings, name=name)
