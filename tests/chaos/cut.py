"""HB-02 as it was reported: a worker's network is cut for two minutes, by the clock on the wall and usual heartbeats.

    python -m tests.chaos.cut [--seconds 120] [--url amqp://… --management http://…]

Prints when each thing was seen; exits with 1 when something was not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from amqpjobs.broker.node import PrivateNode
from amqpjobs.settings import Settings
from tests.broker.cutting import Cut
from tests.patience import until


async def cut(settings: Settings, seconds: float) -> None:
    steps = Cut(settings, until)

    async def for_so_long(gone: Callable[[], Awaitable[bool]]) -> None:
        began = time.monotonic()
        await until(gone, timeout=seconds)
        print(f"gone {time.monotonic() - began:.0f} s after the cut")
        await asyncio.sleep(seconds - (time.monotonic() - began))
        assert await gone(), "it is listed though nothing of it can come"

    try:
        await steps.run(for_so_long)
    finally:
        for what, at in steps.log:
            print(f"{at:7.1f} s  {what}")


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = None if options.url else PrivateNode(Path(folder) / "node")
        if node is not None:
            await node.start()
        url, management = (options.url, options.management) if node is None else (node.url, node.management_url)
        try:
            settings = Settings(url=url, management_url=management, state_dir=Path(folder) / "state")
            await cut(settings, options.seconds)
        finally:
            if node is not None:
                await node.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cut", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="for so long (default: 120; at least 70)")
    parser.add_argument("--url", help="of a broker; by default one is started")
    parser.add_argument("--management", help="of its management API")
    try:
        asyncio.run(main(parser.parse_args()))
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
    print("passed")
