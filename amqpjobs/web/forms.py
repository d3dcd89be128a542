"""Forms of the pages: what they sent, and the way back to their page."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from starlette.responses import RedirectResponse, Response

MOST_FIELDS = 2000


async def fields_of(request: Request) -> list[tuple[str, str]] | None:
    """The fields of a form in order, or None for a body that is none. Its size was checked by the guard."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    try:
        body = (await request.body()).decode("utf-8")
        return parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return None


async def form_of(request: Request) -> dict[str, str] | None:
    """The fields of a form whose names differ, or None for a body that is none."""
    found = await fields_of(request)
    return None if found is None else dict(found)


def back(request: Request, place: str, **query: str) -> Response:
    """To the page that a form stood on."""
    told = {name: value for name, value in query.items() if value not in ("", "0")}
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{place}?{urlencode(told)}", 303)
