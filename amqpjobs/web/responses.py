"""What the routes of the JSON interface have in common."""

from __future__ import annotations

from collections.abc import Mapping
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
