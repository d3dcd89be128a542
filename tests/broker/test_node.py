"""The private node: nothing of it reaches beyond the machine, and nothing of it outlives its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import psutil
import pytest

from amqpjobs.broker.node import NodeError, PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.aio import connect
from amqpjobs.streams.port import Outgoing
from benchmarks.broker import has_room
from tests.broker.reading import read_all
from tests.conftest import Eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.own_node


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


async def room_for_heaps(node: PrivateNode) -> None:
    """Erlang took the last of the sizes that it was told, which are ours, and the benchmarks' page says so."""
    first = "[{instance, _, L} | _] = erlang:system_info({allocator, eheap_alloc})"
    sizes = "[proplists:get_value(C, proplists:get_value(options, L)) || C <- [sbct, lmbcs]]"
    assert (await node.ctl("eval", f"{first}, {sizes}.")).strip() == f"[{16 * 2**20},{32 * 2**20}]"
    least = await node.ctl("eval", "element(2, erlang:system_info(min_bin_vheap_size)).")
    assert int(least) >= 262_144, "of its own it has 46,422"
    assert has_room(node.port)


async def test_it_listens_on_loopback_only_keeps_its_data_and_ends_cleanly(
    tmp_path: Path, eventually: Eventually
) -> None:
    node = PrivateNode(tmp_path / "data")
    await node.start()
    assert node.pid is not None
    processes = family(node.pid)
    listening = [each for each in processes[0].net_connections(kind="inet") if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.port for each in listening} >= {node.port, node.stream_port, node.management_port}
    assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
    await room_for_heaps(node)
    settings = Settings(url=node.url)
    connection = await connect(settings, name="test")
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(b'{"kept":true}', "", names.RETRIES))
    await node.start()  # a second start is nothing
    with pytest.raises(NodeError, match="another private broker"):
        await PrivateNode(tmp_path / "data").start()
    url = node.url
    await node.stop()
    await node.stop()
    await eventually(lambda: not any(alive(process) for process in processes))
    await node.start()
    assert node.url == url
    connection = await connect(settings, name="test")
    assert [message.body for message in await read_all(connection, names.RETRIES)] == [b'{"kept":true}']
    await connection.close()
    await node.stop()


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NodeError, match=f"port {port} is taken"):
            await PrivateNode(tmp_path, port=port).start()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
async def test_the_command_and_its_node_end_together(
    how: signal.Signals, tmp_path: Path, eventually: Eventually
) -> None:
    [port] = free_ports(1)
    command = "import argparse, sys; from amqpjobs.broker.command import run; "
    command += f"sys.exit(run(argparse.Namespace(data={str(tmp_path / 'data')!r}, port={port})))"
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", command, stdout=PIPE, env=environment)
    assert owner.stdout is not None
    line = await owner.stdout.readline()
    assert f"127.0.0.1:{port}" in line.decode()
    assert b"guest" not in line
    children = family(owner.pid)[1:]
    assert {"beam.smp", "epmd"} <= {child.name() for child in children}
    owner.send_signal(how)
    async with asyncio.timeout(PATIENCE):
        status = await owner.wait()
    assert status == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    await eventually(lambda: not any(alive(child) for child in children))


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
