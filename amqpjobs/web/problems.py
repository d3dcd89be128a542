"""Errors of the JSON interface: RFC 9457 problem details."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from amqpjobs.model import text

MEDIA_TYPE = "application/problem+json"


def problem(status: int, title: str, detail: str = "", **more: object) -> Response:
    """One error as a response. `more` are further members, such as `errors`."""
    body: dict[str, object] = {"type": "about:blank", "title": title, "status": status}
    if detail:
        body["detail"] = detail
    return Response(text.dump(text.strict({**body, **more})), status, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of the application this way."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _fault)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = problem(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [{"in": ".".join(str(part) for part in e["loc"]), "message": e["msg"]} for e in error.errors()]
    detail = "; ".join(f"{fault['in']}: {fault['message']}" for fault in faults)
    return problem(422, "Parameters out of bounds", detail, errors=faults)


async def _fault(_: Request, __: Exception) -> Response:
    """The log has the traceback; a visitor gets nothing of it."""
    response = problem(500, "Internal error", "The dashboard made a mistake; its log says more.")
    response.headers["Cache-Control"] = "no-store"
    return response
