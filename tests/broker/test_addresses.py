"""Odd addresses against a real broker: passwords, virtual hosts, hosts in turn; and no secret anywhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.client import Client
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import inspect, topology
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.errors import AccessRefused, BrokerUnavailable, ConnectionLost, Refused
from amqpjobs.streams.link import Link
from tests.broker import languages, site
from tests.broker.languages import LANGUAGES, Language
from tests.broker.programs import Programs
from tests.broker.reading import read_all
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

ODD = "p@:/?#%é"
OTHER = "0ther-s3cret"
RAW = "s3cret@:/?#%é"


@pytest.fixture
def odd(broker: Broker, vhost: str, settings: Settings) -> Iterator[Settings]:
    """A user whose password has every character that means something in an address."""
    with site.user(broker, vhost, f"odd@{vhost}", ODD, tags="management,policymaker") as url:
        yield settings.model_copy(update={"url": url})


@pytest.fixture(params=["aiormq", "lean"])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# Passwords.


async def test_an_encoded_password_is_understood(odd: Settings, driver: str, link: Link) -> None:
    await topology.ensure(await link.connection(), odd)
    await topology.ensure_queue(await link.connection(), odd, "default")
    connection = await connect(odd.model_copy(update={"driver": driver}), name="odd")
    assert "default" in await inspect.queues(connection, odd, set())  # so the management API understands it too
    assert connection.address.startswith("amqp://127.0.0.1:")
    await connection.close()
    pika.BlockingConnection(pika.URLParameters(odd.url)).close()  # what other clients take it for


PROGRAMS = {
    "worker": ("-m", "amqpjobs", "worker", "-A", "workers.demo"),
    "scheduler": ("-m", "amqpjobs", "scheduler"),
    "web": ("-m", "amqpjobs", "web", "--port", "0"),
    "enqueue": ("-m", "amqpjobs", "enqueue", "SendEmailJob"),
    "setup": ("-m", "amqpjobs", "setup"),
    "inspect": ("-m", "amqpjobs", "inspect", "queues"),
}


@pytest.mark.parametrize("arguments", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_raw_password_is_one_clear_line(arguments: tuple[str, ...], programs: Programs, settings: Settings) -> None:
    raw = settings.model_copy(update={"url": f"amqp://ann:{RAW}@127.0.0.1:5672/"})
    program = site.call(programs, *arguments, settings=raw)
    assert program.wait() in (1, 2)
    [line] = program.lines
    for code in ("%40", "%2F", "%3F", "%23", "%25", "%C3%A9"):
        assert code in line
    assert "s3cret" not in line


@pytest.fixture
def odd_everything(broker: Broker, vhost: str, settings: Settings) -> Iterator[Settings]:
    """That user, in a virtual host with a slash in its name."""
    name = f"{vhost}/b"
    with broker.api() as api:
        api.put(f"/vhosts/{quote(name, safe='')}").raise_for_status()
    try:
        with site.user(broker, name, f"odd@{vhost}", ODD) as url:
            yield settings.model_copy(update={"url": url})
    finally:
        with broker.api() as api:
            api.delete(f"/vhosts/{quote(name, safe='')}")


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
async def test_the_encoded_form_works_in_every_language(
    language: Language, odd_everything: Settings, programs: Programs, tmp_path: Path, eventually: Eventually
) -> None:
    """BRK-06: one address, with `p@:/?#%é` and `a/b` in it, for the workers and producers of all languages."""
    if missing := language.missing():
        pytest.fail(missing)
    connection = await connect(odd_everything, name="setup")
    await topology.ensure(connection, odd_everything)
    await topology.ensure_queue(connection, odd_everything, "default")
    await connection.close()
    programs_of = languages.Site(language, odd_everything, programs, tmp_path / "out")
    await asyncio.to_thread(programs_of.start, "-q", "default")
    await asyncio.to_thread(programs_of.produce, "enqueue", "default", "echo", ["x"])
    await eventually(programs_of.written)
    everything = "\n".join(line for program in programs.started for line in program.lines)
    assert ODD not in everything
    assert quote(ODD, safe="") not in everything


# Virtual hosts.


async def test_the_default_virtual_host_by_all_its_names(broker: Broker, settings: Settings, driver: str) -> None:
    base = broker.url.rstrip("/")
    asked = settings.model_copy(update={"driver": driver})
    first = await connect(asked.model_copy(update={"url": base}), name="first")
    marker = f"test-{free_ports(1)[0]}"
    await first.declare_queue(marker, topology.classic(first))
    try:
        for path in ("/", "//", "/%2F", "/%2f"):
            connection = await connect(asked.model_copy(update={"url": base + path}), name="vhost")
            assert await connection.passive(marker) is not None, path
            await connection.close()
    finally:
        await first.delete_queue(marker)
        await first.close()


@pytest.mark.parametrize("name", ["a/b", "é ü", "x%2Fy", "q?a#b@c"])
async def test_other_virtual_hosts(name: str, broker: Broker, settings: Settings, driver: str, vhost: str) -> None:
    odd = f"{vhost}-{name}"
    path = f"/vhosts/{quote(odd, safe='')}"
    with broker.api() as api:
        api.put(path).raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(f"/permissions/{quote(odd, safe='')}/{broker.credentials[0]}", json=rights).raise_for_status()
    try:
        asked = settings.model_copy(update={"url": broker.url_of(odd), "driver": driver})
        connection = await connect(asked, name="odd vhost")
        await topology.ensure(connection, asked)
        await topology.ensure_queue(connection, asked, "default")
        assert "default" in await inspect.queues(connection, asked, set())
        await connection.close()
    finally:
        with broker.api() as api:
            api.delete(path)


async def test_the_virtual_host_without_a_name(node: PrivateNode, tmp_path: Path) -> None:
    """What the AMQP URI specification means by a bare slash."""
    await node.ctl("add_vhost", "")
    await node.ctl("set_permissions", "-p", "", "guest", ".*", ".*", ".*")
    for name in ("aiormq", "lean"):
        asked = Settings.model_validate({"url": f"{node.url}?vhost=", "state_dir": tmp_path, "driver": name})
        connection = await connect(asked, name="no name")
        await topology.ensure_stream(connection, asked, names.RETRIES)
        assert await connection.passive(names.RETRIES) is not None
        await connection.close()
    default = await connect(Settings(url=node.url), name="default")
    assert await default.passive(names.RETRIES) is None
    await default.close()


async def test_a_virtual_host_that_is_not_there_is_named(broker: Broker, settings: Settings, driver: str) -> None:
    asked = settings.model_copy(update={"url": broker.url_of("no/such"), "driver": driver})
    with pytest.raises(AccessRefused, match="no%2Fsuch: no such virtual host"):
        await connect(asked, name="nowhere")


# Hosts in turn.


async def test_hosts_are_tried_in_turn(settings: Settings, driver: str) -> None:
    [closed] = free_ports(1)
    dead = f"amqp://ann:{OTHER}@127.0.0.1:{closed}/x"
    both = settings.model_copy(update={"url": f"{dead}, {settings.url}", "driver": driver})
    connection = await connect(both, name="second")
    assert f":{closed}/" not in connection.address
    await connection.close()
    none = both.model_copy(update={"url": f"{dead} {dead.replace('/x', '/y')}"})
    with pytest.raises(BrokerUnavailable) as caught:
        await connect(none, name="none")
    assert f"127.0.0.1:{closed}/x" in str(caught.value)
    assert f"127.0.0.1:{closed}/y" in str(caught.value)
    assert OTHER not in str(caught.value)
    refusing = settings.url.replace("guest:guest@", f"guest:{OTHER}@")
    with pytest.raises(AccessRefused, match="user or password") as refused:
        await connect(both.model_copy(update={"url": f"{dead} {refusing}"}), name="refused")
    assert OTHER not in str(refused.value)


async def test_one_that_hangs_does_not_keep_us_from_the_next(
    settings: Settings, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.streams.hosts.NEXT_SECONDS", 0.5)
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    both = settings.model_copy(update={"url": f"amqp://127.0.0.1:{port}/ {settings.url}", "driver": driver})
    connection = await connect(both, name="second")
    assert f":{port}/" not in connection.address
    await connection.close()
    server.close()


async def test_what_is_no_broker_says_so(settings: Settings, driver: str) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asked = settings.model_copy(update={"url": f"amqp://ann:{OTHER}@127.0.0.1:{port}/", "driver": driver})
    with pytest.raises((BrokerUnavailable, Refused)) as caught:
        await connect(asked, name="http")
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert OTHER not in str(caught.value)
    server.close()


# Secrets.

PAGES = (
    "/job-queues",
    "/api/job-queues",
    "/api/scheduled-jobs",
    "/api/retries",
    "/api/dead-jobs",
    "/api/processes",
    "/health/live",
    "/health/ready",
)


async def test_no_secret_in_any_log_page_or_heartbeat(
    odd: Settings, programs: Programs, broker: Broker, vhost: str, link: Link, eventually: Eventually
) -> None:
    """UI-05: two addresses with passwords, everything at debug level, a connection that breaks."""
    [closed] = free_ports(1)
    two = f"amqp://ann:{OTHER}@127.0.0.1:{closed}/{vhost}, {odd.url}"
    management = (odd.management_url or "").replace("http://", f"http://{quote(f'odd@{vhost}')}:{quote(ODD, safe='')}@")
    told = odd.model_copy(update={"url": two, "management_url": management})
    running = await asyncio.to_thread(site.start, programs, told, PYTHONASYNCIODEBUG="1")
    async with Client(told) as client:
        await client.enqueue("SendEmailJob", "ann@example.com", "hello")
        await client.enqueue("NoSuchJob")

    def all_cut_off() -> bool:
        """The API lists a connection some seconds after it began."""
        broker.close_connections(vhost)
        return all(program.search(r"lost the connection") for program in running.programs)

    await eventually(all_cut_off)
    pages = "".join(running.get(path).text for path in PAGES)
    await eventually(lambda: running.get("/health/ready").status_code == 200)
    pages += "".join(running.get(path).text for path in PAGES)

    async def finished() -> bool:
        try:
            found = [message.body for message in await read_all(await link.connection(timeout=PATIENCE), names.METRICS)]
        except ConnectionLost:  # ours was cut off too
            return False
        return b"SendEmailJob" in b"".join(found) and b"NoSuchJob" in b"".join(found)

    await eventually(finished)
    entries = ""
    for stream in names.STREAMS:
        entries += "".join(message.body.decode() for message in await read_all(await link.connection(), stream))
    for program in running.programs:
        assert await asyncio.to_thread(program.stop) == 0
    everything = "\n".join(running.lines) + pages + entries
    assert "heartbeat" in entries
    assert "127.0.0.1" in pages
    for secret in (ODD, OTHER, quote(ODD, safe=""), quote(ODD), "ann:", f"odd%40{vhost}:"):
        assert secret not in everything, secret
    assert not re.search(r"amqps?://[^\s/]*@", everything)


def test_a_broker_that_is_away_is_reported_without_its_password(programs: Programs, settings: Settings) -> None:
    [closed] = free_ports(1)
    away = settings.model_copy(update={"url": f"amqp://ann:{OTHER}@127.0.0.1:{closed}/x"})
    for arguments in (PROGRAMS["worker"], PROGRAMS["scheduler"], PROGRAMS["setup"]):
        program = site.call(programs, *arguments, settings=away)
        assert program.wait() == 1
        assert f"127.0.0.1:{closed}" in "\n".join(program.lines)
        assert OTHER not in "\n".join(program.lines)
