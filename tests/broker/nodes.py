"""Orders to a private node, as an operator would give them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from amqpjobs.broker.node import PrivateNode, find_server

NORMAL_WATERMARK = "0.6"


async def control(node: PrivateNode, *words: str) -> str:
    """Run `rabbitmqctl` against the node; what it says. Raises AssertionError when it fails."""
    server = find_server()
    assert server is not None
    program = Path(server).with_name("rabbitmqctl")
    process = await asyncio.create_subprocess_exec(
        str(program),
        "-n",
        "amqpjobs@localhost",
        *words,
        env=node._environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def block(node: PrivateNode) -> None:
    """Raise the memory alarm: publishers are no longer read from."""
    await control(node, "set_vm_memory_high_watermark", "0.0000001")


async def unblock(node: PrivateNode) -> None:
    """Clear the memory alarm."""
    await control(node, "set_vm_memory_high_watermark", NORMAL_WATERMARK)
