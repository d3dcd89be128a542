"""A real RabbitMQ for every test that says it tests messaging: a given one, a container, or a private node."""

from __future__ import annotations

import asyncio
import functools
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import pytest
from hypothesis import settings as hypothesis_settings

from amqpjobs.broker.node import PrivateNode, connect_once
from amqpjobs.clock import SystemClock
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from tests import container, parallel
from tests.parallel import pytest_configure, pytest_xdist_make_scheduler  # noqa: F401 - hooks
from tests.patience import PATIENCE, until

# Property tests judge results, not how busy the machine is: no deadline for an example. They try the same each time:
# what other examples find belongs to `make test ANEW=1`, not to whoever runs the suite next.
hypothesis_settings.register_profile("suite", deadline=None, derandomize=not os.environ.get("ANEW"))
hypothesis_settings.load_profile("suite")


@dataclass(frozen=True)
class Broker:
    """A broker under test: AMQP address of its default virtual host, address of its management API."""

    url: str
    management_url: str

    @property
    def credentials(self) -> tuple[str, str]:
        parts = urlsplit(self.url)
        return parts.username or "guest", parts.password or "guest"

    def url_of(self, vhost: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, "/" + quote(vhost, safe=""), parts.query, ""))

    def api(self) -> httpx.Client:
        return httpx.Client(base_url=self.management_url + "/api", auth=self.credentials, timeout=PATIENCE)

    def overview(self) -> dict[str, Any]:
        with self.api() as api:
            answer: dict[str, Any] = api.get("/overview").raise_for_status().json()
            return answer

    @functools.cached_property
    def lavinmq(self) -> bool:
        """Whether it is LavinMQ and not RabbitMQ."""
        return "lavinmq_version" in self.overview()

    def create_vhost(self, **settings: str) -> str:
        """A virtual host of a fresh name; `settings` as the management API takes them (default_queue_type…)."""
        vhost = "t-" + uuid.uuid4().hex[:12]
        user = self.credentials[0]
        with self.api() as api:
            api.put(f"/vhosts/{vhost}", json=settings).raise_for_status()
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            api.put(f"/permissions/{vhost}/{user}", json=rights).raise_for_status()
        return vhost

    def delete_vhost(self, vhost: str) -> None:
        with self.api() as api:
            api.delete(f"/vhosts/{vhost}")

    def close_connections(self, vhost: str, *, named: str | None = None) -> int:
        """Force-close the connections of a virtual host, as an operator would; how many there were."""
        closed = 0
        with self.api() as api:
            for each in api.get(f"/vhosts/{vhost}/connections").raise_for_status().json():
                name = each.get("client_properties", {}).get("connection_name")
                if named is None or name == named:
                    api.delete(f"/connections/{quote(each['name'], safe='')}", headers={"X-Reason": "test"})
                    closed += 1
        return closed


def with_credentials(url: str) -> str:
    """The address with the usual user in it, where it names none: tests put others in its place."""
    parts = urlsplit(url)
    return url if "@" in parts.netloc else urlunsplit(parts._replace(netloc=f"guest:guest@{parts.netloc}"))


def usual_management_url(url: str) -> str:
    """Where a broker's HTTP API is when its ports were moved together: 15672 for 5672."""
    parts = urlsplit(url)
    return f"http://{parts.hostname or '127.0.0.1'}:{(parts.port or 5672) + 10_000}"


async def serving(broker: Broker, timeout: float = 120.0) -> None:
    """Return once a broker that has just been started answers on both its doors."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            await connect_once(broker.url)
            await asyncio.to_thread(broker.overview)
        except (BrokerError, httpx.HTTPError) as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"the container's broker does not serve within {timeout} s: {error}") from error
            await asyncio.sleep(0.2)
        else:
            return


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for the fixture `node` needs a node of its own."""
    for item in items:
        if "node" in getattr(item, "fixturenames", ()):
            item.add_marker("own_node")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=parallel.place)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The session's broker: the one that AMQPJOBS_TEST_URL names, a container of AMQPJOBS_TEST_CONTAINER, or a node."""
    if given := os.environ.get("AMQPJOBS_TEST_URL"):
        given = with_credentials(given)
        yield Broker(given, os.environ.get("AMQPJOBS_TEST_MANAGEMENT_URL") or usual_management_url(given))
        return
    if image := os.environ.get("AMQPJOBS_TEST_CONTAINER"):
        with container.running(image) as (url, management_url):
            found = Broker(url, management_url)
            asyncio.run(serving(found))
            yield found
        return
    node = PrivateNode(tmp_path_factory.mktemp("broker"))
    asyncio.run(node.start())
    try:
        yield Broker(node.url, node.management_url)
    finally:
        node.kill()  # nothing of it is needed any more, and a clean stop takes six seconds
        asyncio.run(node.stop())


@pytest.fixture(autouse=True)
def _only_where_it_is(request: pytest.FixtureRequest) -> None:
    """Skips what is marked `rabbitmq` where the broker is another one: docs/brokers.md says what differs."""
    marker = request.node.get_closest_marker("rabbitmq")
    if marker is not None and request.getfixturevalue("broker").lavinmq:
        pytest.skip(f"LavinMQ: {marker.args[0]}")


@pytest.fixture
def vhost(broker: Broker) -> Iterator[str]:
    """A fresh virtual host, deleted afterwards."""
    name = broker.create_vhost()
    yield name
    broker.delete_vhost(name)


@pytest.fixture
def settings(broker: Broker, vhost: str, tmp_path: Path) -> Settings:
    """Settings for the fresh virtual host."""
    settings = Settings(url=broker.url_of(vhost), management_url=broker.management_url, state_dir=tmp_path / "state")
    if os.environ.get("AMQPJOBS_TEST_QUEUE_TYPE") == "quorum":
        return settings.model_copy(update={"queue_type": "quorum"})
    return settings


@pytest.fixture
async def link(settings: Settings) -> AsyncIterator[Link]:
    """A started link to the fresh virtual host."""
    link = Link(settings, "test", SystemClock())
    await link.start()
    await link.connection(timeout=PATIENCE)
    yield link
    await link.stop()


@pytest.fixture
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateNode]:
    """A private node of the test's own, running, which it may stop, kill and start."""
    node = PrivateNode(tmp_path_factory.mktemp("node"))
    await node.start()
    yield node
    node.kill()
    await node.stop()


Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
def eventually() -> Eventually:
    """`await eventually(predicate)`: its first true value (the predicate may be async)."""
    return until
