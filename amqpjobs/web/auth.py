"""What a request must be before any route sees it, and what a browser may do with the answer.

The dashboard is open on loopback, where its only visitors are this machine's own users. That is guarded against a
web page elsewhere that resolves its own name to 127.0.0.1 (DNS rebinding): a `Host` that is none of ours is refused.
On any other address a token or a proxy's word is required (access.py): programs send the token as a bearer token, or
as the password of HTTP Basic; people log in with it and get a cookie.

What changes something must come from this page or from a program: a browser says with `Sec-Fetch-Site` and `Origin`
where a request comes from, and one that another site sent is refused, whatever credentials the browser added to it.
Where the credential is a cookie, the form's own token is needed besides.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpjobs.web.access import Access, Visitor, is_loopback
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
    "Referrer-Policy": "same-origin",  # with no-referrer, a browser without Sec-Fetch-Site sends our forms as `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOGIN, LOGOUT = "/login", "/logout"
HEALTH = frozenset({"/health/live", "/health/ready"})
"""What a load balancer asks without a token: they tell a state, and nothing about jobs."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_TAKES = re.compile(r"/queue/[^/]+/job")
"""Who gets this takes a job: what a page elsewhere could make a browser do is guarded, whatever its method."""
MOST_BYTES = 4 * 1024 * 1024
"""What the body of a request may have."""
_STATE = "amqpjobs.visitor"


class Guard:
    """Checks each request before any route sees it, and puts the safe headers on each answer."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Iterable[str] = ()) -> None:
        self._app, self._access = app, access
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

        refusal = self._refusal(scope)
        visitor: Visitor = scope.get(_STATE, Visitor())
        if refusal is None and visitor.cookie and not _only_reads(scope):
            try:
                receive, refusal = await self._form_token(Request(scope, receive), visitor)
            except ClientDisconnect:
                return
        await (refusal or self._app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), path_of(scope)
        if not self._known_host(headers.get("host", "")):
            return problem(421, "Unknown host", "This dashboard does not answer to that Host header.")
        visitor = self._access.visitor(headers, scope["client"][0] if scope.get("client") else None)
        public = path in HEALTH or path == LOGIN or path.startswith("/static/")
        if visitor is None and not public:
            return self._unknown(scope, headers)
        scope[_STATE] = visitor or Visitor("nobody", "viewer")
        if _only_reads(scope):
            return None
        return self._foreign(headers) or _without_bounds(headers) or self._forbidden(scope[_STATE], path)

    def _unknown(self, scope: Scope, headers: Headers) -> Response:
        """A person is sent to the login, and back afterwards; a program is told what to send."""
        if self._access.tokens and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            there = scope.get("root_path", "") + path_of(scope) + (f"?{query}" if query else "")
            return RedirectResponse(f"{scope.get('root_path', '')}{LOGIN}?{urlencode({'next': there})}", 303)
        told = "Send the token as a bearer token." if self._access.tokens else "Come through the proxy, which says who."
        refusal = problem(401, "Who is it?", told)
        refusal.headers["WWW-Authenticate"] = 'Bearer realm="amqpjobs"'
        return refusal

    def _foreign(self, headers: Headers) -> Response | None:
        """The body of a form is no secret between sites: where it was sent from is what counts."""
        sent_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if sent_from not in (None, "same-origin", "none"):
            return problem(403, "Foreign origin", "Another site sent this request.")
        if sent_from is None and origin is not None and not self._own_origin(origin, headers):
            return problem(403, "Foreign origin", "The Origin header names another site.")
        return None

    def _forbidden(self, visitor: Visitor, path: str) -> Response | None:
        if path in (LOGIN, LOGOUT, *HEALTH):  # there is nothing to change: what they do not take is told by a 405
            return None
        if self._access.read_only:
            return problem(403, "Read only", "This dashboard only shows: AMQPJOBS_WEB_READ_ONLY is set.")
        if visitor.role != "operator":
            return problem(403, "Read only", "This token only lets its bearer look.")
        return None

    async def _form_token(self, request: Request, visitor: Visitor) -> tuple[Receive, Response | None]:
        """The body, to be read again by the route, and a refusal of what did not come from a form of ours."""
        body = await request.body()
        shown = request.headers.get("x-csrf-token")
        if shown is None and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            shown = _field(body, "csrf")

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        if shown is not None and hmac.compare_digest(shown.encode(), self._access.csrf(visitor).encode()):
            return again, None
        return again, problem(403, "Stale form", "This form is not of your present login: load the page again.")

    def _own_origin(self, origin: str, headers: Headers) -> bool:
        """The scheme may differ, where TLS ends before us, and the host, where a proxy renames it: no page elsewhere
        can make a browser send X-Forwarded-Host. `null` (a sandboxed page, a file) is nobody's."""
        scheme, _, place = origin.lower().partition("://")
        ours = {headers.get("host", "").lower(), headers.get("x-forwarded-host", "").lower()} - {""}
        return scheme in ("http", "https") and (place in ours or place.rsplit(":", 1)[0] in self._hosts)

    def _known_host(self, header: str) -> bool:
        """With credentials, a rebound name gains nothing (the browser has none for it); without, all depends on it."""
        if not self._access.open:
            return True
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        return is_loopback(name.lower()) or name.lower() in self._hosts


def visitor_of(request: HTTPConnection) -> Visitor:
    """Who asks, as the guard found."""
    visitor: Visitor = request.scope[_STATE]
    return visitor


def visitor(request: HTTPConnection) -> str:
    """Who the audit says that it was."""
    return visitor_of(request).name


def path_of(scope: Scope) -> str:
    """The path below the one that the dashboard is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def _only_reads(scope: Scope) -> bool:
    return scope["method"] in _READS and not _TAKES.fullmatch(path_of(scope))


def _without_bounds(headers: Headers) -> Response | None:
    length = headers.get("content-length", "0" if "transfer-encoding" not in headers else "")
    if not length.isdecimal():
        return problem(411, "Length required", "Send the body with a Content-Length.")
    if int(length) > MOST_BYTES:
        return problem(413, "Too large", f"The body of a request may have {MOST_BYTES} bytes.")
    return None


def _field(body: bytes, name: str) -> str | None:
    try:
        return parse_qs(body.decode("utf-8"), max_num_fields=20_000).get(name, [None])[0]
    except ValueError:
        return None
