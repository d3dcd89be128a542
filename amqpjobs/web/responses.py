"""What the routes of the JSON interface have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from amqpjobs.model import text

Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Offset = Annotated[int, Query(ge=0, le=2**53, description="How many to skip.")]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Any value as strict JSON."""
    body = text.dump(text.strict(value))
    return Response(body, status, headers=headers, media_type="application/json")


async def told(tell: Callable[[], Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """What `tell` returns as strict JSON, both made in a thread: of what may be long, such as a list of a thousand
    entries, which would hold up the loop. `tell` reads nothing that the loop changes."""
    return await asyncio.to_thread(lambda: json_response(tell(), status, headers))
