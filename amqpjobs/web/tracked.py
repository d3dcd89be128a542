"""What the doors to tracked jobs have in common: the door itself, and verdicts as answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from amqpjobs.model import text
from amqpjobs.model.tracked import Judged, Word
from amqpjobs.model.tracked_commands import Act
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.tracked_door import NotKnown, TrackedDoor
from amqpjobs.web.auth import visitor
from amqpjobs.web.problems import problem


def door(request: Request) -> TrackedDoor:
    """This process's door."""
    found: TrackedDoor = request.app.state.tracked
    return found


async def judged(request: Request, act: Act, told: Callable[[Judged], Response | Awaitable[Response]]) -> Response:
    """Give a command and answer its verdict: `told` says how it is answered when it was done.

    Else 404, 409 or 400; 202 with the command's name while it is not known; 503 when it certainly did not arrive.
    """
    try:
        found = await door(request).ask(act, by=visitor(request))
    except NotKnown as error:
        return answer({"command": error.uuid}, 202)
    except BrokerError as error:
        return problem(503, "Not done", str(error))
    match found.verdict.word:
        case Word.NOT_FOUND:
            return problem(404, "Not found")
        case Word.CONFLICT:
            return problem(409, "Conflict", "The job is not in a state for this, or another attempt holds it.")
        case Word.REFUSED:
            return problem(400, "Refused", "The command could not be read.")
    response = told(found)
    return response if isinstance(response, Response) else await response


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """JSON, with what came as JSON spliced in as it came."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(text.dump(value), status, headers=named, media_type="application/json")


def spliced(raw: bytes) -> Any:
    """JSON to be answered as it came; NaN and infinities, which are none but were taken, as strings."""
    if b"NaN" in raw or b"Infinity" in raw:
        try:
            orjson.loads(raw)
        except ValueError:
            return text.strict(text.parse(raw))
    return text.Verbatim(raw)


def whole(value: Any) -> Any:
    """3.0 as 3, which it is in JSON; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def done(_: Judged) -> Response:
    """204."""
    return Response(status_code=204)
