"""What a list is asked for in its address, the same for pages and for JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from amqpjobs.model import text
from amqpjobs.streams.listing import Search
from amqpjobs.web.responses import Limit, Offset


def search(  # noqa: PLR0917 - the query's names, as FastAPI takes them
    q: Annotated[str, Query(max_length=500, description="Words of arguments or error, or how a jid begins.")] = "",
    class_: Annotated[str, Query(alias="class", max_length=500, description="Only this class.")] = "",
    queue: Annotated[str, Query(max_length=500, description="Only this queue.")] = "",
    tag: Annotated[str, Query(max_length=500, description="Only with this tag.")] = "",
    sort: Annotated[str, Query(max_length=20, description="due, failed_at, jid, class, queue; -… downwards")] = "",
    limit: Limit = 100,
    offset: Offset = 0,
    after: Annotated[str, Query(max_length=10_000, description="X-Next-After of the page before.")] = "",
) -> Search:
    """What a list is asked for."""
    q, class_, queue, tag = (text.safe(each) for each in (q, class_, queue, tag))
    return Search(q, class_, queue, tag, sort, limit, offset, after)


Searched = Annotated[Search, Depends(search)]
