"""What a process loads at its start: each driver costs a good part of a second, and only one of them is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

CONNECTS = """
import asyncio, sys
import {module}
from amqpjobs.settings import Settings
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.errors import BrokerUnavailable
try:
    asyncio.run(connect(Settings(url="amqp://127.0.0.1:1/", driver={driver!r}), name="test"))
except BrokerUnavailable:
    print(*sorted(name for name in ("aio_pika", "aiormq", "pamqp") if name in sys.modules))
"""


@pytest.mark.parametrize("module", ["amqpjobs.client", "amqpjobs.worker.command", "amqpjobs.scheduler.app"])
@pytest.mark.parametrize(("driver", "loaded"), [("lean", "pamqp"), ("aiormq", "aiormq pamqp")])
def test_only_the_driver_that_is_used_is_loaded(module: str, driver: str, loaded: str) -> None:
    code = CONNECTS.format(module=module, driver=driver)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == loaded
