"""`amqpjobs broker`: a private node in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from amqpjobs.broker.node import NodeError, PrivateNode
from amqpjobs.settings import Settings, redact


def run(options: argparse.Namespace) -> int:
    """Run a node until INT or TERM. `options` has `data` (a folder, or None for the state folder's) and `port`.

    Returns the exit status: 1 when it cannot start or ends by itself.
    """
    data = Path(options.data) if options.data is not None else Settings().state_dir / "broker"
    try:
        return asyncio.run(_serve(PrivateNode(data, port=options.port)))
    except NodeError as error:
        print(f"amqpjobs broker: {error}", file=sys.stderr)
        return 1


async def _serve(node: PrivateNode) -> int:
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    starting = asyncio.create_task(node.start())
    stopping = asyncio.create_task(stop.wait())
    ended: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return 0
        await starting
        print(f"broker ready: {redact(node.url)} management {node.management_url} data {node.data}", flush=True)
        ended = asyncio.create_task(node.wait_ended())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            raise NodeError(f"the broker ended by itself: see {node.data / 'node.log'}")
        return 0
    finally:
        await _finish(starting, stopping, ended)
        await node.stop()


async def _finish(*tasks: asyncio.Task[None] | asyncio.Task[bool] | None) -> None:
    alive = [task for task in tasks if task is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)
