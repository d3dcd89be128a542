"""Broker addresses: `amqp://user:password@host:port/vhost`, several of them where there are several hosts to try.

Strict where clients differ: what another client could take for something else is an error that says what to write,
and no error shows any part of the address that may be of the password.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote

AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
MANAGEMENT_PORTS = {"http": 15672, "https": 15671}
UNREADABLE = "<unreadable address>"

_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+(?:%25[^\]]+)?\]|[^\s:@%\[\]]*")


class AddressError(ValueError):
    """Why an address cannot be read, without its secrets."""


@dataclass(frozen=True, slots=True)
class Address:
    """One broker and what to say to it. `vhost` is decoded: `/`, `a/b`, or empty."""

    secure: bool
    host: str
    port: int
    vhost: str
    user: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The address for logs and pages: without user and password."""
        scheme = "amqps" if self.secure else "amqp"
        path = "" if self.vhost == "/" else quote(self.vhost, safe="") or "?vhost="
        return f"{scheme}://{bracketed(self.host)}:{self.port}/{path}"


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A management API: `base` without credentials and without a slash at its end; those of its own, if any."""

    base: str
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)


class _Parts(NamedTuple):
    scheme: str
    user: str | None
    password: str | None
    host: str
    port: int
    path: str
    query: str


def brokers(text: str) -> list[Address]:
    """The addresses in `text`, at least one: separated by spaces or commas, to be tried in this order.

    Raises AddressError.
    """
    return [_broker(each) for each in _BETWEEN.split(text.strip(" \t\r\n,"))]


def web(text: str) -> WebAddress:
    """The address of a management API. Raises AddressError."""
    parts = _parts(text.strip(), MANAGEMENT_PORTS, "the management address", "http://host:15672")
    base = f"{parts.scheme}://{bracketed(parts.host)}:{parts.port}{parts.path.rstrip('/')}"
    return WebAddress(base, parts.user, parts.password)


def redact(text: str) -> str:
    """The addresses without users and passwords, for logs and pages."""
    try:
        return ", ".join(address.shown for address in brokers(text))
    except AddressError:
        return UNREADABLE


def bracketed(host: str) -> str:
    """The host as it stands in an address: an IPv6 one in brackets."""
    return f"[{host}]" if ":" in host else host


def _broker(text: str) -> Address:
    parts = _parts(text, AMQP_PORTS, "the broker address", "amqp://user:password@host:5672/vhost")
    user, password = (parts.user, parts.password) if parts.user else ("guest", "guest")
    secure = parts.scheme == "amqps"
    return Address(secure, parts.host, parts.port, _vhost(parts), user, password or "")


def _vhost(parts: _Parts) -> str:
    """No path, `/`, `//` (as Celery writes it) and `/%2F` are the default one, `/`.

    The AMQP URI specification reads a bare `/` as the empty name, which most clients do not; `?vhost=` says that.
    """
    named = parse_qs(parts.query, keep_blank_values=True).get("vhost")
    if named:
        return named[-1]
    if parts.path in ("", "/", "//"):
        return "/"
    if "/" in parts.path[1:]:
        raise AddressError("the broker address: write a '/' in the virtual host as %2F")
    _check_percent(parts.path, "the broker address: its virtual host")
    return unquote(parts.path[1:])


def _parts(text: str, ports: dict[str, int], what: str, example: str) -> _Parts:
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in ports:
        raise AddressError(f"{what} must look like {example}, with reserved characters percent-encoded")
    userinfo, at, rest = rest.rpartition("@")
    _check_credentials(userinfo, what)
    before, _, query = _without_fragment(rest, what).partition("?")
    authority, slash, path = before.partition("/")
    host, port = _host_and_port(authority, ports[scheme], what, example)
    user, colon, password = userinfo.partition(":")
    return _Parts(
        scheme,
        unquote(user) if at else None,
        unquote(password) if colon else None,
        host or "127.0.0.1",
        port,
        slash + path,
        query,
    )


def _check_credentials(userinfo: str, what: str) -> None:
    """Everything before the last `@` is user and password: any other reading would send a part of it to a stranger."""
    odd = dict.fromkeys(each for each in userinfo if each in "@/?#[]\\" or not " " < each < "\x7f")
    if _BARE_PERCENT.search(userinfo):
        odd["%"] = None
    if odd:
        raise AddressError(
            f"{what} must be percent-encoded; user, password or virtual host contain {_how_to_write(odd)}"
        )


def _check_percent(text: str, what: str) -> None:
    if _BARE_PERCENT.search(text):
        raise AddressError(f"{what} contains {_how_to_write('%')}")


def _how_to_write(characters: Collection[str]) -> str:
    return ", ".join(f"{each!r} (write {quote(each, safe='')})" for each in characters)


def _without_fragment(rest: str, what: str) -> str:
    if "#" in rest:
        raise AddressError(f"{what} contains {_how_to_write('#')}")
    return rest


def _host_and_port(authority: str, usual: int, what: str, example: str) -> tuple[str, int]:
    """Where no `@` stands, "host" and "port" may be user and password of somebody who forgot it: not shown."""
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not colon:
        host, port = authority, ""
    if not _HOST.fullmatch(host):
        raise AddressError(f"{what}: its host cannot be read; it must look like {example}")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise AddressError(f"{what}: its port is no number up to 65535; it must look like {example}")
    return host.strip("[]").replace("%25", "%"), int(port) if port else usual
