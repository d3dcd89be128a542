"""Addresses in the order that OpenAPI reads them in, and the methods that each of them has.

A jid may contain `/`, so `/api/dead-jobs/{jid}` would match `/api/dead-jobs/j1/retry` too, and a DELETE of the latter
would look for a job of the name `j1/retry`. Of the addresses that match, the most exact one is meant: whatever it has
no method for is refused there, with exactly the methods that it has in `Allow`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amqpjobs.web.problems import problem

_PLACE = re.compile(r"\{[^}:]*(:path)?[^}]*\}")
_END = 3


class Refusal:
    """Answers whatever comes with 405 and the methods that there are."""

    def __init__(self, methods: Iterable[str]) -> None:
        self.allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        response = problem(405, "Method Not Allowed", f"Here is {self.allow}.")
        response.headers["Allow"] = self.allow
        await response(scope, receive, send)


def ordered(routers: Iterable[APIRouter]) -> list[BaseRoute]:
    """All routes of these, the most exact address first, and after those of one address what refuses the rest."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    found: list[BaseRoute] = []
    for _, same in groupby(sorted(routes, key=_exactness), key=_exactness):
        group = list(same)
        refusal = Refusal(method for route in group for method in route.methods or ())
        found += [*group, Route(group[0].path, refusal, include_in_schema=False)]
    return found


def _exactness(route: APIRoute) -> tuple[tuple[int, str], ...]:
    """Segment by segment: a word before a place for one, a place for one before a place for several."""
    return (*map(_segment, route.path.split("/")), (_END, ""))


def _segment(written: str) -> tuple[int, str]:
    place = _PLACE.fullmatch(written)
    return (0, written) if place is None else (2 if place[1] else 1, "")
