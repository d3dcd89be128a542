"""What `/openapi.json` tells of the interface beyond what the routes' own types say."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from amqpjobs.web.auth import HEALTH
from amqpjobs.web.problems import MEDIA_TYPE

_PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string"}, "errors": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["type", "title", "status"],
}  # fmt: skip
_JSON: dict[str, Any] = {"application/json": {"schema": {}}}
_MEANT = {
    "400": "It cannot be understood.",
    "404": "There is no such thing.",
    "409": "It is not in a state for this.",
    "413": "It is too large.",
    "422": "Parameters out of bounds; `errors` names each.",
    "503": "The broker is away or takes no messages: nothing was done.",
}


def install(app: FastAPI) -> None:
    """Describe the application so; made once, when it is asked for."""
    usual = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            told = usual()
            _complete(told)
            if app.state.access.tokens:
                _guard(told)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _complete(told: dict[str, Any]) -> None:
    schemas = told.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    problems = {status: {"description": meant, "content": content} for status, meant in _MEANT.items()}
    other = {
        "204": {"description": "Done, or there is nothing."},
        "default": {"description": "Any other problem.", "content": content},
    }
    unknown = {"202": {"description": "Sent; its outcome is not known yet.", "content": _JSON}}
    for methods in told["paths"].values():
        for method, operation in methods.items():
            more = other if method == "get" else {**other, **unknown}
            operation["responses"] = {**problems, **more, **_own(operation["responses"])}


def _guard(told: dict[str, Any]) -> None:
    told["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    told["security"] = [{"token": []}]
    for path in HEALTH & told["paths"].keys():
        for operation in told["paths"][path].values():
            operation["security"] = []


def _own(responses: dict[str, Any]) -> dict[str, Any]:
    """The route's own answers; FastAPI adds a 422 of its own shape, which nobody answers here."""
    return {status: answer for status, answer in responses.items() if status != "422"}
