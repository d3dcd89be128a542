"""Who a visitor is and what that visitor may do, by what a request shows: a token, a login's cookie, a proxy's word.

A login's cookie is signed with a key made of the token that was typed: it needs no store, outlives a restart, holds at
every dashboard with the same token, and ends when the token is changed. It names the role, the visitor and its own end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Literal, NamedTuple

from starlette.datastructures import Headers

from amqpjobs.clock import Clock
from amqpjobs.settings import Settings

Role = Literal["operator", "viewer"]
COOKIE = "amqpjobs_session"
LIFE = 7 * 86_400
"""Seconds for which a login holds."""
LONGEST_NAME = 100
SHORTEST_TOKEN = 16
"""Characters that a token must have where a network can reach the dashboard: there is no limit on guesses."""


class BindRefused(Exception):
    """The dashboard may not be served on this address; the message says what to do."""


class Visitor(NamedTuple):
    """Who asks. `name` is for the audit; `cookie` the login's cookie, where that is what was shown."""

    name: str = "dashboard"
    role: Role = "operator"
    cookie: str = ""


@dataclass(frozen=True)
class Access:
    """The rules of one dashboard. Without tokens and `user_header` it is open."""

    clock: Clock
    tokens: Mapping[Role, str] = field(default_factory=dict, repr=False)
    user_header: str = ""
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    read_only: bool = False

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Access:
        """The rules that the settings make."""
        secrets = {"operator": settings.web_token, "viewer": settings.web_view_token}
        tokens = {role: secret.get_secret_value() for role, secret in secrets.items() if secret}
        proxies = tuple(ipaddress.ip_network(each, strict=False) for each in settings.web_proxies)
        return cls(clock, tokens, settings.web_user_header, proxies, settings.web_read_only)  # type: ignore[arg-type]

    @property
    def open(self) -> bool:
        """Whether nobody has to show anything."""
        return not self.tokens and not self.user_header

    def visitor(self, headers: Headers, peer: str | None) -> Visitor | None:
        """Who sends these headers from the address `peer`; None: nobody who may look."""
        if self.open:
            return Visitor(_basic(headers)[0] or "dashboard")
        return self._by_token(headers) or self._by_proxy(headers, peer) or self._by_cookie(headers)

    def role_of(self, token: str) -> Role | None:
        """Whose token that is."""
        given = token.encode("utf-8", "surrogateescape")
        found: Role | None = None
        for role, secret in self.tokens.items():  # all of them, so that the time it takes tells nothing
            if hmac.compare_digest(given, secret.encode()):
                found = role
        return found

    def login(self, role: Role, name: str) -> str:
        """The value of the cookie of somebody who has shown the token of `role`."""
        who = base64.urlsafe_b64encode(name[:LONGEST_NAME].encode("utf-8", "replace")).decode().rstrip("=")
        told = f"{role}.{int(self.clock.wall()) + LIFE}.{who}"
        return f"{told}.{self._sign(role, 'session', told)}"

    def csrf(self, visitor: Visitor) -> str:
        """What a form must send back beside the cookie, which a browser adds to whatever a page sends; "" without."""
        return self._sign(visitor.role, "csrf", visitor.cookie) if visitor.cookie else ""

    def _by_token(self, headers: Headers) -> Visitor | None:
        scheme, _, value = headers.get("authorization", "").partition(" ")
        name, shown = "", ""
        if scheme.lower() == "bearer":
            shown = value.strip().encode("latin-1").decode("utf-8", "surrogateescape")
        elif scheme.lower() == "basic":
            name, shown = _basic(headers)
        role = self.role_of(shown) if shown else None
        return Visitor(name or "dashboard", role) if role else None

    def _by_proxy(self, headers: Headers, peer: str | None) -> Visitor | None:
        """Only from where the proxy is: whoever reaches this port directly can write any header."""
        if not self.user_header or peer is None:
            return None
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return None
        name = headers.get(self.user_header, "").strip()[:LONGEST_NAME]
        return Visitor(name) if name and any(address in network for network in self.proxies) else None

    def _by_cookie(self, headers: Headers) -> Visitor | None:
        value = _cookie(headers)
        told, _, signature = value.rpartition(".")
        role, _, rest = told.partition(".")
        if role not in self.tokens:
            return None
        known: Role = "operator" if role == "operator" else "viewer"
        if not hmac.compare_digest(signature, self._sign(known, "session", told)):
            return None
        until, _, who = rest.partition(".")
        if int(until) <= self.clock.wall():
            return None
        name = base64.urlsafe_b64decode(who + "=" * (-len(who) % 4)).decode("utf-8", "replace")
        return Visitor(name or "dashboard", known, value)

    def _sign(self, role: Role, purpose: str, text: str) -> str:
        key = self.tokens[role].encode()
        return hmac.new(key, f"amqpjobs {purpose} {text}".encode(), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine talking to itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, settings: Settings) -> None:
    """Refuse to serve a dashboard to a network that anybody there could use, or guess a way into."""
    if is_loopback(host):
        return
    where = host or "all addresses"
    tokens = [each.get_secret_value() for each in (settings.web_token, settings.web_view_token) if each]
    if not tokens and not settings.web_user_header:
        raise BindRefused(
            f"refusing to serve on {where} without a token: set AMQPJOBS_WEB_TOKEN to a long random text, or "
            "AMQPJOBS_WEB_USER_HEADER where a proxy says who it is, or keep the dashboard on 127.0.0.1"
        )
    if any(len(token) < SHORTEST_TOKEN for token in tokens):
        raise BindRefused(
            f"refusing to serve on {where} with a token of less than {SHORTEST_TOKEN} characters: set "
            "AMQPJOBS_WEB_TOKEN (and AMQPJOBS_WEB_VIEW_TOKEN) to a long random text, such as `openssl rand -hex 16`"
        )


def _basic(headers: Headers) -> tuple[str, str]:
    """Name and password of HTTP Basic authentication, both empty where there is none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        shown = base64.b64decode(value.strip().encode("latin-1"), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return "", ""
    name, _, password = shown.partition(":")
    return name[:LONGEST_NAME].encode("utf-8", "replace").decode(), password


def _cookie(headers: Headers) -> str:
    """The login's cookie as it came; "" for none, or for one that no login of ours would give."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None and morsel.value.isascii() else ""
