"""What a list is asked for in its address, the same for pages, for their forms and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError

from amqpjobs.model import fields, text
from amqpjobs.streams.listing import SORTS, Search
from amqpjobs.web import schemas
from amqpjobs.web.responses import Limit, Offset

FIELDS = ("search", "class", "queue", "tag", "error", "since", "until", "sort")
"""What a search is made of, in the address of a page and in its forms."""
_TEXTS = ("search", "class", "queue", "tag", "error", "sort")

_Word = Annotated[str, Query(max_length=500)]
_Time = Annotated[
    str,
    Query(
        max_length=40,
        description="Seconds since 1970, or ISO 8601; of the time it goes by.",
        json_schema_extra=schemas.TIME_IN_QUERY,
    ),
]
_SORTS = [f"{sign}{key}" for key in SORTS for sign in ("", "-")]


def search(  # noqa: PLR0917 - the query's names, as FastAPI takes them
    search: Annotated[
        str, Query(max_length=500, description="Words of arguments or error, or a jid's beginning.")
    ] = "",
    q: Annotated[str, Query(max_length=500, description="The same as `search`.")] = "",
    class_: Annotated[str, Query(alias="class", max_length=500, description="Only this class.")] = "",
    queue: Annotated[str, Query(max_length=500, description="Only this queue.")] = "",
    tag: Annotated[str, Query(max_length=500, description="Only with this tag.")] = "",
    error: Annotated[str, Query(max_length=500, description="Only with this error class.")] = "",
    since: _Time = "",
    until: _Time = "",
    sort: Annotated[
        str,
        Query(
            max_length=20,
            description="due, at, jid, class, queue; -… downwards",
            json_schema_extra={"enum": ["", *_SORTS]},
        ),
    ] = "",
    limit: Limit = 100,
    offset: Offset = 0,
    after: Annotated[
        str,
        Query(
            max_length=10_000,
            description="X-Next-After of the page before.",
            json_schema_extra={"pattern": "^[A-Za-z0-9_-]*$"},
        ),
    ] = "",
) -> Search:
    """What a list is asked for."""
    values = (search or q, class_, queue, tag, error, since, until, sort)
    try:
        found = read(dict(zip(FIELDS, values, strict=True)))
    except ValueError as fault:
        wrong = {"type": "value_error", "loc": ("query", str(fault).partition(":")[0]), "msg": str(fault), "input": ""}
        raise RequestValidationError([wrong]) from None
    return found._replace(limit=limit, offset=offset, after=after)


Searched = Annotated[Search, Depends(search)]


def read(given: Mapping[str, str]) -> Search:
    """A search from the fields of a form. Raises ValueError naming the field that cannot be."""
    q, cls, queue, tag, error, sort = (text.safe(given.get(name, "")) for name in _TEXTS)
    since, until = _instant("since", given), _instant("until", given)
    return Search(q or text.safe(given.get("q", "")), cls, queue, tag, sort, error=error, since=since, until=until)


def written(wanted: Search) -> dict[str, str]:
    """A search as it stands in the address of a page, without the page's place in the list."""
    values = [wanted.q, wanted.cls, wanted.queue, wanted.tag, wanted.error, wanted.since, wanted.until, wanted.sort]
    return {name: str(value) for name, value in zip(FIELDS, values, strict=True) if value not in ("", None)}


def filters(wanted: Search) -> bool:
    """Whether it is about less than the whole list."""
    return bool(wanted.q or wanted.cls or wanted.queue or wanted.tag or wanted.narrowed)


def _instant(name: str, given: Mapping[str, str]) -> float | None:
    written = given.get(name, "").strip()
    if not written:
        return None
    try:
        found = fields.instant(float(written))
    except ValueError:
        found = fields.instant(written)
    if isinstance(found, fields.Problem):
        raise ValueError(f"{name}: {found}")
    return found
