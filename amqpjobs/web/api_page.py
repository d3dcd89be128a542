"""The page of the JSON interface: every route, what it takes and what it answers, from the same description that
`/openapi.json` gives to programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpjobs.web.pages import page_of

router = APIRouter(include_in_schema=False)

ABOUT = (
    "All answers are strict JSON; integers of any size are exact, NaN and infinities are strings. Errors are problem "
    "details (RFC 9457) with `title` and `detail`. Lists take `limit` (1 to 1000, 100 by default) and `offset`, or "
    "`after` with the X-Next-After of the page before; X-Total-Count tells how many there are. Where a token is set, "
    "send it as `Authorization: Bearer …`; a login's cookie needs the form's token as X-CSRF-Token for what changes "
    "something. Bodies have a Content-Length of at most 4 MiB."
)
GROUPS = {
    "queues": "Queues", "jobs": "Jobs", "waiting": "Jobs that wait", "metrics": "Metrics", "processes": "Processes",
    "record": "The record", "health": "Health", "tracked jobs": "Tracked jobs",
    "": "Tracked jobs as Ocypod has them",
}  # fmt: skip


_EXAMPLES: dict[str, Any] = {"array": [], "boolean": True, "integer": 1, "number": 1.5, "object": {}}
"""What stands for a value of a kind; text is an ellipsis."""


class Field(NamedTuple):
    """A parameter, or a member of a body."""

    name: str
    place: str
    kind: str
    needed: bool
    about: str


class Operation(NamedTuple):
    """One route."""

    method: str
    path: str
    about: str
    fields: tuple[Field, ...]
    curl: str
    """A command that calls it; what stands in braces is to be put in."""


@router.get("/api/docs")
async def page(request: Request) -> Response:
    """The page."""
    described = request.app.openapi()
    groups: dict[str, list[Operation]] = {name: [] for name in GROUPS}
    for group, operation in _operations(described):
        groups.setdefault(group, []).append(operation)
    more = {"place": "api/docs", "groups": groups, "titles": GROUPS, "about": ABOUT, "told": None}
    return await page_of(request, "api.html", **more)


def _operations(described: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            fields = [_parameter(each) for each in told.get("parameters", [])]
            fields += _body(told, described)
            group = (told.get("tags") or [""])[0]
            about, curl = told.get("description", ""), _curl(method.upper(), path, fields)
            yield group, Operation(method.upper(), path, about, tuple(fields), curl)


def _curl(method: str, path: str, fields: list[Field]) -> str:
    members = {each.name: _EXAMPLES.get(each.kind, "…") for each in fields if each.place == "body" and each.needed}
    body = f" -d '{json.dumps(members, ensure_ascii=False)}'" if any(each.place == "body" for each in fields) else ""
    word = "" if method == ("POST" if body else "GET") else f" -X {method}"
    kind = " -H 'Content-Type: application/json'" if body else ""
    return f"curl{word}{kind}{body} http://127.0.0.1:8484{path}"


def _parameter(told: Mapping[str, Any]) -> Field:
    about = told.get("description", "") or told["schema"].get("description", "")
    return Field(told["name"], told["in"], _kind(told["schema"]), told.get("required", False), about)


def _body(told: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[Field]:
    """The members of the body, of all its kinds where it may be of several; needed where each kind needs it."""
    schema = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return
    kinds = [_schema(each, described) for each in schema.get("anyOf", [schema])]
    needed = set.intersection(*(set(each.get("required", ())) for each in kinds))
    members = {name: each for kind in kinds for name, each in kind.get("properties", {}).items()}
    for name, each in members.items():
        yield Field(name, "body", _kind(each), name in needed, each.get("description", ""))


def _schema(schema: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    if "$ref" in schema:
        return "object"
    said = schema.get("type", "any")
    kind = " or ".join(str(each) for each in (said if isinstance(said, list) else [said]) if each != "null")
    return f"array of {_kind(schema['items'])}" if kind == "array" and schema.get("items") else kind
