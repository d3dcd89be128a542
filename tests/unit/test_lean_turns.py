"""What one read of a socket brings is handed over in turns of the loop, all of it, in order, also what came last."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path

import pytest
import uvloop
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.frame import marshal

from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.lean.consumer import LeanConsumer
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import TURN
from amqpjobs.streams.port import Incoming, Properties
from tests.certificates import Authority
from tests.patience import until
from tests.unit.test_lean_wire import delivery

MANY = 20 * TURN + 7


async def _turns(split: bool, authority: Authority | None, *, stays: bool) -> tuple[list[int], Counter[int], bool]:
    """Tags as they came, how many came in each turn of the loop, and whether the end was heard of.

    `split`: each body comes in two frames, so that frames are read one by one. `authority`: the connection has TLS.
    `stays`: the broker says its last words and goes only when all else was read.
    """
    loop, turn = asyncio.get_running_loop(), 0

    def turned() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(turned)

    turned()
    tags, turns, socket = list[int](), Counter[int](), Socket()

    def take(message: Incoming) -> None:
        tags.append(message.tag)
        turns[turn] += 1

    consumer = LeanConsumer(socket, 3, take, answers_cancel=False)
    consumer._release_early()
    socket.channels[3] = consumer
    sent = b"".join(delivery(tag, b"body", Properties()) for tag in range(1, MANY + 1))
    if split:
        whole, parts = (
            b"".join(marshal(ContentBody(part), 3) for part in each) for each in ([b"body"], [b"bo", b"dy"])
        )
        sent = sent.replace(whole, parts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(sent)
        if stays:
            await until(lambda: len(tags) == MANY)
        writer.write(marshal(commands.Channel.Close(406, "enough", 0, 0), 3))
        writer.close()

    theirs, ours = (None, None) if authority is None else _contexts(authority)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=theirs)
    async with server:
        port = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_connection(lambda: socket, "127.0.0.1", port, ssl=ours)
        await until(lambda: socket.life.over)
        transport.close()
    return tags, turns, consumer.life.over and "enough" in str(consumer.life.reason)


def _contexts(authority: Authority) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    certificate = authority.issue("broker")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate.cert, certificate.key)
    return theirs, ssl.create_default_context(cafile=authority.file)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("split", [False, True], ids=["whole deliveries", "frame by frame"])
@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_thousand_deliveries_at_once_hold_the_loop_up_in_small_turns(
    runs: object, split: bool, tls: bool, tmp_path: Path
) -> None:
    """And where the broker goes before their turn comes all are read, and its last words too."""
    authority = Authority(tmp_path) if tls else None
    for stays in (True, False):
        tags, turns, told = runs(_turns(split, authority, stays=stays))  # type: ignore[operator]
        assert tags == list(range(1, MANY + 1))
        assert told
        assert max(turns.values()) <= TURN or not stays


async def test_what_is_given_up_is_read_no_further() -> None:
    """Deliveries behind the one whose handler ended the connection belong to somebody else."""
    socket, tags = Socket(), list[int]()

    def take(message: Incoming) -> None:
        tags.append(message.tag)
        if len(tags) == TURN:
            socket.abort(BrokerError("enough"))

    consumer = LeanConsumer(socket, 3, take, answers_cancel=False)
    consumer._release_early()
    socket.channels[3] = consumer
    socket.data_received(b"".join(delivery(tag, b"body", Properties()) for tag in range(1, MANY + 1)))
    for _ in range(3 * MANY // TURN):
        await asyncio.sleep(0)
    assert tags == list(range(1, TURN + 1))
