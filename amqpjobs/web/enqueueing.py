"""Enqueueing over HTTP, for whoever speaks no AMQP."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.responses import Response

from amqpjobs.client import Client
from amqpjobs.model import fields, names, text
from amqpjobs.payload import MAX_RETRY, MOST_KEY
from amqpjobs.streams.errors import BrokerError, ConfirmTimeout, TooLarge
from amqpjobs.web import schemas
from amqpjobs.web.kue_acts import NewJob, create
from amqpjobs.web.lists import views_of
from amqpjobs.web.problems import problem
from amqpjobs.web.responses import json_response

router = APIRouter()


Seconds = Annotated[float, Field(gt=0, lt=1e15)]


class Wanted(BaseModel):
    """A job to enqueue. Everything but `class` may be left out; docs/protocol.md says what each means."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cls: str = Field(alias="class", min_length=1)
    args: list[Any] | dict[str, Any] = Field(default_factory=list, description="A list, or an object of keywords.")
    at: Annotated[str | float | None, WithJsonSchema(schemas.TIME_OR_NULL)] = None
    jid: Annotated[str | None, WithJsonSchema(schemas.JID_OR_NULL)] = Field(default=None, min_length=1)
    queue: str | None = Field(default=None, pattern=schemas.QUEUE)
    retry: bool | Annotated[int, Field(ge=0, le=MAX_RETRY)] | None = None
    priority: int | None = Field(default=None, ge=0, le=names.MAX_PRIORITY)
    tags: list[Annotated[str, Field(min_length=1)]] | None = None
    timeout: Seconds | None = None
    retry_delays: list[Annotated[float, Field(ge=0, lt=1e15)]] | None = Field(default=None, min_length=1)
    min_backoff: Seconds | None = None
    max_backoff: Seconds | None = None
    expires_in: Seconds | None = None
    dead: bool | None = None
    backtrace: bool | Annotated[int, Field(ge=0, le=10_000)] | None = None
    track: bool | None = None
    key: str | None = Field(default=None, min_length=1, max_length=MOST_KEY)
    meta: dict[str, Any] | None = None

    def options(self) -> dict[str, Any]:
        """What a client takes as options."""
        return self.model_dump(exclude={"cls", "args", "at"}, exclude_none=True)

    def due(self) -> float | None:
        """When, in seconds since 1970. Raises ValueError."""
        found = None if self.at is None else fields.instant(self.at)
        if isinstance(found, fields.Problem):
            raise ValueError(f"at: {found}")
        return found


_CHANGED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The job of that key, as it was changed.", "content": {"application/json": {"schema": {}}}}
}
_TRACKED = NewJob.model_json_schema()
_NO_AMQP: schemas.Schema = {"const": False}
_SCHEMA = {
    "anyOf": [
        Wanted.model_json_schema(),
        schemas.narrowed(_TRACKED, ("type",), type={**_TRACKED["properties"]["type"], "minLength": 1}),
        schemas.narrowed(_TRACKED, ("type",), amqp=_NO_AMQP),
        schemas.narrowed(_TRACKED, ("key",), amqp=_NO_AMQP),
    ]
}


@router.post("/api/jobs", status_code=201, tags=["jobs"], responses=_CHANGED, openapi_extra=schemas.body(_SCHEMA))
async def enqueue(request: Request) -> Response:
    """Put a job on its queue, now or later. 201: the broker has confirmed it; 202: it may have arrived (with the same
    `jid` a second copy can be told apart); 503: it was not sent. With a `type` or `key`, and no `class`: a tracked job,
    201; or 200 where one of its key waited, and was changed."""
    wanted = await asyncio.to_thread(_read, await request.body())  # it may have megabytes
    if isinstance(wanted, Response):
        return wanted
    if isinstance(wanted, NewJob):
        return await create(request, wanted)
    blocked = views_of(request).blocked
    if blocked is not None:
        return problem(503, "Not sent", f"The broker takes no messages: {blocked}.")
    jid = wanted.jid or secrets.token_hex(12)
    try:
        due = wanted.due()
        await _send(request.app.state.client, wanted, jid, due)
    except ConfirmTimeout as error:
        return json_response({"jid": jid, "detail": f"It may have arrived: {error}"}, 202)
    except _REFUSALS as error:
        return _refused(error)
    return json_response({"jid": jid, "queue": wanted.queue or names.DEFAULT_QUEUE, "at": due}, 201)


_REFUSALS = (BrokerError, TypeError, ValueError, OverflowError)


def _refused(error: Exception) -> Response:
    if isinstance(error, TooLarge):
        return problem(413, "Too large", str(error))
    if isinstance(error, BrokerError):
        return problem(503, "Not sent", str(error))
    return problem(422, "Parameters out of bounds", str(error))


async def _send(client: Client, wanted: Wanted, jid: str, due: float | None) -> None:
    """By keywords or by position, as it was given; under the jid that the answer will name, whatever happens."""
    options: Any = wanted.options() | {"jid": jid}
    args = wanted.args if isinstance(wanted.args, list) else []
    kwargs = wanted.args if isinstance(wanted.args, dict) else None
    if due is None:
        call = (wanted.cls, kwargs or args, options)
        message = await asyncio.to_thread(client.message, call)  # checks arguments one by one, of megabytes perhaps
        for failed in (await client.send([message])).values():
            raise failed
    else:
        await client.enqueue_at(due, wanted.cls, *args, kwargs=kwargs, **options)


def _read(body: bytes) -> Wanted | NewJob | Response:
    """Read by our own parser, which is strict and keeps integers of any size."""
    try:
        value = text.parse(body)
        tracked = isinstance(value, dict) and "class" not in value and not value.keys().isdisjoint(("type", "key"))
        return NewJob.model_validate(value) if tracked else Wanted.model_validate(value)
    except text.NotJson as error:
        return problem(422, "Parameters out of bounds", f"the body is no JSON: {error}")
    except ValidationError as error:
        faults = [{"in": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in error.errors()]
        detail = "; ".join(f"{fault['in']}: {fault['message']}" for fault in faults)
        return problem(422, "Parameters out of bounds", detail, errors=faults)
