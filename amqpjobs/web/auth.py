"""Who may look, from where, and what a browser may do with the page.

The dashboard is open on loopback, where its only visitors are this machine's own users. That is guarded against a
web page elsewhere that resolves its own name to 127.0.0.1 (DNS rebinding): a `Host` that is none of ours is refused.
On any other address a token is required (`AMQPJOBS_WEB_TOKEN`): programs send it as a bearer token, browsers ask for
it as the password of HTTP Basic authentication (any user name, which is who the audit says it was).

What changes something must come from this page or from a program: a browser says with `Sec-Fetch-Site` and `Origin`
where a request comes from, and one that another site sent is refused, whatever credentials the browser added to it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpjobs.web.problems import problem

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OPEN_PATHS = ("/health/live", "/health/ready")
"""What a load balancer asks without a token: they tell a state, and nothing about jobs."""


_READS = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_BYTES = 4 * 1024 * 1024
"""What the body of a request may have."""


class BindRefused(Exception):
    """The dashboard may not be served on this address; the message says what to do."""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine talking to itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, token: str | None) -> None:
    """Refuse to serve an open dashboard to a network."""
    if is_loopback(host) or token:
        return
    raise BindRefused(
        f"refusing to serve on {host or 'all addresses'} without a token: set AMQPJOBS_WEB_TOKEN to a long random "
        "text, or keep the dashboard on 127.0.0.1"
    )


class Guard:
    """Checks each request before any route sees it, and puts the safe headers on each answer."""

    def __init__(
        self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] = (), *, read_only: bool = False
    ) -> None:
        self._app = app
        self._read_only = read_only
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._known_host(headers.get("host", "")):
            return problem(421, "Unknown host", "This dashboard does not answer to that Host header.")
        if self._token is None or scope["path"] in _OPEN_PATHS or _bears(headers, self._token):
            return None if scope["method"] in _READS else self._write_refusal(headers)
        refusal = problem(401, "Token needed", "Send the token as a bearer token, or as the password of HTTP Basic.")
        refusal.headers["WWW-Authenticate"] = 'Basic realm="amqpjobs", charset="UTF-8"'
        return refusal

    def _write_refusal(self, headers: Headers) -> Response | None:
        if self._read_only:
            return problem(403, "Read only", "This dashboard only shows: AMQPJOBS_WEB_READ_ONLY is set.")
        sent_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if sent_from not in (None, "same-origin", "none"):
            return problem(403, "Foreign origin", "Another site sent this request.")
        if sent_from is None and origin is not None and not self._own_origin(origin, headers.get("host", "")):
            return problem(403, "Foreign origin", "The Origin header names another site.")
        length = headers.get("content-length", "0" if "transfer-encoding" not in headers else "")
        if not length.isdecimal():
            return problem(411, "Length required", "Send the body with a Content-Length.")
        if int(length) > MOST_BYTES:
            return problem(413, "Too large", f"The body of a request may have {MOST_BYTES} bytes.")
        return None

    def _own_origin(self, origin: str, host: str) -> bool:
        """The scheme may differ, where TLS ends before us; `null` (a sandboxed page, a file) is nobody's."""
        scheme, _, place = origin.lower().partition("://")
        return scheme in ("http", "https") and (place == host.lower() or place.rsplit(":", 1)[0] in self._hosts)

    def _known_host(self, header: str) -> bool:
        """With a token, a rebound name gains nothing (the browser has no credentials for it); without, all depends."""
        if self._token is not None:
            return True
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        return is_loopback(name.lower()) or name.lower() in self._hosts


def visitor(request: HTTPConnection) -> str:
    """Who the audit says that it was: the user name of HTTP Basic, where there is one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    try:
        name = base64.b64decode(value.strip(), validate=True).partition(b":")[0].decode("utf-8")
    except (binascii.Error, ValueError):
        name = ""
    return name[:100] if scheme.lower() == "basic" and name else "dashboard"


def _bears(headers: Headers, token: str) -> bool:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    shown = value.strip().encode("latin-1")  # the bytes as they came
    if scheme.lower() == "basic":
        try:
            shown = base64.b64decode(shown, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(shown, token.encode())
