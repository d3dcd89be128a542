"""TLS to a broker with an authority of its own; what is not trusted is refused with one line."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.client import Client
from amqpjobs.settings import Settings
from amqpjobs.streams import inspect, policies, topology
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.errors import BrokerUnavailable, Refused
from tests.broker import site
from tests.broker.programs import Programs
from tests.certificates import Authority, Certificate
from tests.conftest import Eventually

pytestmark = pytest.mark.own_node


class Secured(NamedTuple):
    """A node that has TLS for AMQP and for its management API, and asks for no certificate of ours."""

    node: PrivateNode
    authority: Authority
    port: int
    management_port: int

    def settings(self, folder: Path, **changes: object) -> Settings:
        given = {
            "url": f"amqps://guest:guest@127.0.0.1:{self.port}/",
            "management_url": f"https://127.0.0.1:{self.management_port}",
            "ca_file": self.authority.file,
            "state_dir": folder / "state",
        }
        return Settings.model_validate(given | changes)


def listeners(port: int, management_port: int, authority: Authority, own: Certificate, *, asks: bool) -> list[str]:
    options = {"cacertfile": authority.file, "certfile": own.cert, "keyfile": own.key}
    return [
        f"listeners.ssl.local = 127.0.0.1:{port}",
        *(f"ssl_options.{name} = {file}" for name, file in options.items()),
        f"ssl_options.verify = {'verify_peer' if asks else 'verify_none'}",
        f"ssl_options.fail_if_no_peer_cert = {str(asks).lower()}",
        "management.ssl.ip = 127.0.0.1",
        f"management.ssl.port = {management_port}",
        *(f"management.ssl.{name} = {file}" for name, file in options.items()),
    ]


@asynccontextmanager
async def secured(folder: Path, *, asks: bool = False) -> AsyncIterator[Secured]:
    authority = Authority(folder / "authority")
    port, management_port = free_ports(2)
    config = listeners(port, management_port, authority, authority.issue("broker"), asks=asks)
    node = PrivateNode(folder / "node", config=config)
    await node.start()
    try:
        yield Secured(node, authority, port, management_port)
    finally:
        node.kill()
        await node.stop()


@asynccontextmanager
async def in_front_of(node: PrivateNode, certificate: Certificate) -> AsyncIterator[int]:
    """A door with another certificate: the port of a TLS server that leads to the node's plain one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", node.port)
        await asyncio.gather(copy(reader, ours), copy(theirs, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def refusal(settings: Settings) -> str:
    """Why both drivers are not connected, in the same words."""
    said = set()
    for driver in ("aiormq", "lean"):
        with pytest.raises(Refused) as caught:
            await connect(settings.model_copy(update={"driver": driver}), name="tls")
        said.add(str(caught.value))
    [line] = said
    assert "\n" not in line
    assert "guest" not in line
    return line


async def test_a_private_authority(tmp_path: Path, eventually: Eventually) -> None:
    async with secured(tmp_path) as broker:
        settings = broker.settings(tmp_path)
        for driver in ("aiormq", "lean"):
            connection = await connect(settings.model_copy(update={"driver": driver}), name="tls")
            assert connection.address == f"amqps://127.0.0.1:{broker.port}/"
            await topology.ensure(connection, settings)
            await topology.ensure_queue(connection, settings, "default")
            assert "default" in await inspect.queues(connection, settings, set())
            await connection.close()
        assert await policies.ensure(settings) == []
        async with Client(settings) as client:
            await client.enqueue("SendEmailJob", "ann@example.com", "hello")

        programs = Programs()
        try:
            ca_file = str(broker.authority.file)
            running = await asyncio.to_thread(site.start, programs, settings, AMQPJOBS_CA_FILE=ca_file)
            await asyncio.to_thread(running.worker.wait_for, "mail to ann@example.com")
            await eventually(lambda: "default" in running.get("/api/job-queues").text)
            assert not running.scheduler.search("policies")
        finally:
            programs.end()

        await check_what_is_not_trusted(broker, tmp_path)


async def check_what_is_not_trusted(broker: Secured, folder: Path) -> None:
    unknown = await refusal(broker.settings(folder, ca_file=None))
    assert "AMQPJOBS_CA_FILE" in unknown

    other = Authority(folder / "other")
    assert "not accepted" in await refusal(broker.settings(folder, ca_file=other.file))

    by_name = await refusal(broker.settings(folder, url=f"amqps://guest:guest@localhost:{broker.port}/"))
    assert "certificate is not valid for 'localhost'" in by_name

    expired = broker.authority.issue("expired", days=-1)
    elsewhere = broker.authority.issue("elsewhere", address="DNS:rabbit.example")
    for certificate, says in ((expired, "certificate has expired"), (elsewhere, "not valid for '127.0.0.1'")):
        async with in_front_of(broker.node, certificate) as port:
            url = f"amqps://guest:guest@127.0.0.1:{port}/"
            assert says in await refusal(broker.settings(folder, url=url))
            api = await policies.ensure(broker.settings(folder, management_url=f"https://127.0.0.1:{port}"))
            assert says in api[0]

    plain = await refusal(broker.settings(folder, url=f"amqps://guest:guest@127.0.0.1:{broker.node.port}/"))
    assert "TLS" in plain
    no_tls = broker.settings(folder, url=f"amqp://guest:guest@127.0.0.1:{broker.port}/")
    with pytest.raises(BrokerUnavailable):
        await connect(no_tls, name="plain to TLS")


async def test_a_program_that_is_not_trusted_says_one_line_and_ends(tmp_path: Path) -> None:
    async with secured(tmp_path, asks=True) as broker:
        ours = broker.authority.issue("ours")
        with_ours = broker.settings(tmp_path, cert_file=ours.cert, key_file=ours.key)
        for driver in ("aiormq", "lean"):
            connection = await connect(with_ours.model_copy(update={"driver": driver}), name="client certificate")
            await connection.close()
        without = broker.settings(tmp_path)
        for driver in ("aiormq", "lean"):
            with pytest.raises((Refused, BrokerUnavailable)) as caught:
                await connect(without.model_copy(update={"driver": driver}), name="no certificate")
            assert f"amqps://127.0.0.1:{broker.port}/" in str(caught.value)

        programs = Programs()
        try:
            for arguments in (
                ("worker", "-A", "workers.demo"),
                ("scheduler",),
                ("web", "--port", "0"),
                ("enqueue", "SendEmailJob"),
            ):
                program = await asyncio.to_thread(
                    site.call,
                    programs,
                    "-m",
                    "amqpjobs",
                    *arguments,
                    settings=without.model_copy(update={"ca_file": None}),
                )
                assert program.wait() == 1
                [line] = program.lines
                assert "AMQPJOBS_CA_FILE" in line
        finally:
            programs.end()


@pytest.mark.parametrize("setting", ["ca_file", "cert_file"])
async def test_a_file_that_cannot_be_used_is_named_by_its_setting(setting: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    nothing = tmp_path / "nothing.pem"
    for content in (None, "no PEM"):
        if content is not None:
            nothing.write_text(content)
        given = {"url": "amqps://u:s3cret@127.0.0.1:1/", "ca_file": authority.file, setting: nothing}
        line = await refusal(Settings.model_validate(given))
        assert f"AMQPJOBS_{setting.upper()}" in line
        assert str(nothing) in line
        assert "s3cret" not in line
