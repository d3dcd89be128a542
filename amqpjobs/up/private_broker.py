"""The private broker of `amqpjobs up`: chosen port, and started again when it dies."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from amqpjobs.broker.node import NodeError, PrivateNode
from amqpjobs.broker.ports import LOOPBACK
from amqpjobs.clock import Clock
from amqpjobs.service import Service

USUAL_PORT = 5672
_PORTS_TRIED = 100
_PAUSE = 2.0


class PrivateBroker(Service):
    """Keeps one `PrivateNode` running. Its port is the usual one or the next that is free."""

    def __init__(self, data: Path, *, say: Callable[[str], None], clock: Clock) -> None:
        super().__init__("broker")
        self._say = say
        self._clock = clock
        port = free_port(USUAL_PORT)
        if port != USUAL_PORT:
            say(f"port {USUAL_PORT} is taken, the private broker uses {port}")
        self.node = PrivateNode(data, port=port)

    async def start(self) -> None:
        """Start the node, return when it serves, and watch it from then on. Raises NodeError when it cannot."""
        await self.node.start()
        await super().start()

    async def stop(self) -> None:
        """Stop watching, then stop the node."""
        await super().stop()
        await self.node.stop()

    async def run(self) -> None:
        """Start the node again whenever it is gone."""
        while True:
            await self.node.wait_ended()
            self._say(f"the node ended: starting it again in {_PAUSE:g} s")
            await self.node.stop()  # its port mapper and the lock of its folder are still ours
            await self._clock.sleep(_PAUSE)
            try:
                await self.node.start()
                self._say("the node serves again")
            except NodeError as error:
                self._say(str(error))


def free_port(wanted: int) -> int:
    """`wanted`, or the next port of the loopback interface that nobody listens on. Raises NodeError."""
    for port in range(wanted, wanted + _PORTS_TRIED):
        if is_free(LOOPBACK, port):
            return port
    raise NodeError(f"no free port between {wanted} and {wanted + _PORTS_TRIED}")


def is_free(host: str, port: int) -> bool:
    """Whether one could listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
