"""Acting on jobs that were chosen: named one by one, or all that a search finds."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from amqpjobs.action import Action, Order
from amqpjobs.model.protocol import Target
from amqpjobs.streams.listing import Search
from amqpjobs.streams.marks import Where
from amqpjobs.web.problems import problem
from amqpjobs.web.views import Views

MOST_FOUND = 100_000
"""Jobs that a search by times or errors may find for an action; by class, queue, tag and words there is no limit."""


async def act(views: Views, order: Order, chosen: Sequence[Target] | Search) -> Action | Response:
    """Begin the action and wait for its outcome, but not for ever; or say why not."""
    if not isinstance(chosen, Search):
        return await views.desk.act(order, chosen)
    if order.word == "restore":
        return problem(422, "Parameters out of bounds", "restore takes jobs, or POST /api/actions/{id}/undo")
    if (reason := views.late(order.stream)) is not None:
        return problem(503, "Not ready", f"What matches is not known: {reason}. Nothing was done.")
    if not chosen.narrowed:
        where = Where(*(value or None for value in (chosen.cls, chosen.queue, chosen.tag, chosen.q)))
        return await views.desk.act_on_all(order, where)
    try:
        return await views.desk.act(order, await _found(views, order.stream, chosen))
    except ValueError as error:
        return problem(422, "Parameters out of bounds", str(error))


async def _found(views: Views, stream: str, search: Search) -> list[Target]:
    found = await views.targets(stream, search, MOST_FOUND + 1)
    if len(found) > MOST_FOUND:
        raise ValueError(f"More than {MOST_FOUND:,} match: narrow it down.")
    return found
