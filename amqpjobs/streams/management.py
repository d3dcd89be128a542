"""The broker's management API: asked where AMQP has no word for it, and never needed."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from amqpjobs import addresses
from amqpjobs.addresses import Address, AddressError, WebAddress, bracketed
from amqpjobs.settings import Settings
from amqpjobs.streams import tls
from amqpjobs.streams.errors import Refused

API_SECONDS = 1.5


class NoApi(Exception):
    """The API does not answer as it should; why, in a few words without credentials."""


class NotThere(NoApi):
    """404: the API answers, and has no such object."""


class Api:
    """The API for one virtual host; paths are below `/api/`, `{vhost}` in them is replaced."""

    def __init__(self, client: httpx.AsyncClient, base: str, vhost: str) -> None:
        self._client, self._base = client, base
        self.vhost = vhost

    async def get(self, path: str, **query: str) -> Any:
        """What the API says. Raises NoApi."""
        try:
            return (await self._ask("GET", path, params=query)).json()
        except ValueError:
            raise NoApi(f"{self._base} is no management API") from None

    async def put(self, path: str, value: Mapping[str, Any]) -> None:
        """Create or replace an object. Raises NoApi."""
        await self._ask("PUT", path, json=value)

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        url = f"{self._base}/api/{path.format(vhost=quote(self.vhost, safe=''))}"
        try:
            answer = await self._client.request(method, url, **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoApi(_reason(error, self._base)) from error
        if answer.status_code in (401, 403):
            raise NoApi(f"{self._base} refuses the user (HTTP {answer.status_code})")
        if answer.status_code == 404:
            raise NotThere(f"{self._base} has no {path}")
        if answer.is_error:
            raise NoApi(f"{self._base} answers HTTP {answer.status_code}: {answer.text.strip()[:200]}")
        return answer


@contextlib.asynccontextmanager
async def api(settings: Settings) -> AsyncIterator[Api]:
    """The API of the settings, or of the first broker. Raises NoApi, also for an address or file that is no good."""
    _silence()
    try:
        broker = addresses.brokers(settings.url)[0]
        place = where(settings)
        verify: ssl.SSLContext | bool = False  # setting up TLS costs 20 ms, for nothing over plain HTTP
        if place.base.startswith("https:"):
            verify = tls.context(settings)
    except (AddressError, Refused) as error:
        raise NoApi(str(error)) from None
    credentials = place.user or broker.user, (place.password or "") if place.user else broker.password
    async with httpx.AsyncClient(auth=credentials, timeout=API_SECONDS, verify=verify) as client:
        yield Api(client, place.base, broker.vhost)


def where(settings: Settings) -> WebAddress:
    """Where the API should be: the setting, or the usual port at the first broker's host, with TLS where that has it.

    Raises AddressError.
    """
    if settings.management_url:
        return addresses.web(settings.management_url)
    return _beside(addresses.brokers(settings.url)[0])


def _beside(broker: Address) -> WebAddress:
    """Never without TLS where the broker is reached with it: the same password goes there."""
    scheme = "https" if broker.secure else "http"
    return WebAddress(f"{scheme}://{bracketed(broker.host)}:{addresses.MANAGEMENT_PORTS[scheme]}", None, None)


def _reason(error: Exception, base: str) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return tls.failure(cause, base)
        cause = cause.__cause__ or cause.__context__
    return f"nothing answers at {base} ({type(error).__name__})"


def _silence() -> None:
    """httpx logs each request at INFO: the dashboard asks all the time."""
    for name in ("httpx", "httpcore"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)
