"""Each driver in turn, on a real broker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from amqpjobs.settings import Settings
from amqpjobs.streams import aio
from amqpjobs.streams.lean import connection as lean
from amqpjobs.streams.port import Connection

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture(autouse=True)
async def nothing_unhandled() -> AsyncIterator[None]:
    """No future's or task's exception is left for the loop to complain about when it is collected."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


@pytest.fixture(params=[aio.connect, lean.connect], ids=["aiormq", "lean"])
def connect(request: pytest.FixtureRequest) -> Connect:
    driver: Connect = request.param
    return driver


@pytest.fixture
async def connection(connect: Connect, settings: Settings) -> AsyncIterator[Connection]:
    connection = await connect(settings, name="conformance")
    yield connection
    await connection.close()
