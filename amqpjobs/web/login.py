"""Logging in and out: for people, who get a cookie for the token. Programs send the token itself."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from amqpjobs.web.access import COOKIE, LIFE, Access
from amqpjobs.web.auth import LOGIN, LOGOUT, visitor_of
from amqpjobs.web.forms import form_of
from amqpjobs.web.pages import Renderer
from amqpjobs.web.problems import problem

log = logging.getLogger("amqpjobs.web")
router = APIRouter(include_in_schema=False)


@router.get(LOGIN)
async def ask(request: Request, next: str = "") -> Response:
    """The form."""
    return _page(request, next)


@router.post(LOGIN)
async def login(request: Request) -> Response:
    """The form, filled in."""
    form, access = await form_of(request), _access(request)
    if form is None:
        return problem(422, "Parameters out of bounds", "This is no form of that page.")
    role = access.role_of(form.get("token", ""))
    if role is None:
        log.warning("a login from %s with a wrong token", request.client.host if request.client else "nowhere")
        return _page(request, form.get("next", ""), form.get("name", ""), wrong=True)
    response = RedirectResponse(_inside(request, form.get("next", "")), 303)
    _set(request, response, access.login(role, form.get("name", "").strip()), LIFE)
    return response


@router.post(LOGOUT)
async def logout(request: Request) -> Response:
    """Forget the login in this browser."""
    response = RedirectResponse(_root(request) + LOGIN, 303)
    _set(request, response, "", 0)
    return response


def _set(request: Request, response: Response, value: str, life: int) -> None:
    """No script reads it, no other site's form sends it, and once given over TLS it goes over nothing else."""
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip())
    response.set_cookie(
        COOKIE, value, max_age=life, path=_root(request) or "/", secure=secure, httponly=True, samesite="lax"
    )


def _page(request: Request, there: str, name: str = "", *, wrong: bool = False) -> Response:
    renderer: Renderer = request.app.state.renderer
    known = visitor_of(request).cookie != "" or _access(request).open
    more = {"next": _inside(request, there), "name": name, "wrong": wrong, "known": known}
    return HTMLResponse(renderer.bare("login.html", _root(request), **more), 401 if wrong else 200)


def _inside(request: Request, there: str) -> str:
    """Where to go after the login: a page of ours, whatever the address asked for."""
    root = _root(request)
    ours = there.startswith(f"{root}/") and not there.startswith("//") and there.isascii() and there.isprintable()
    return there if ours and "\\" not in there else f"{root}/job-queues"


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root
