"""What must exist in the virtual host, declared passively first: a user without configure rights can work on it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import AccessRefused, NotFound, PreconditionFailed
from amqpjobs.streams.port import Connection, Scalar

log = logging.getLogger("amqpjobs.streams")

DELIVERY_LIMIT = 1_000_000_000
"""Returns to a quorum queue that a job survives: as good as all. "Unlimited" (-1) drops at the first one on 3.13."""

NO_KEY = "/"
"""A routing key that no job has: it cannot be a queue's name."""

EXCHANGES = {names.JOBS_EXCHANGE: "direct", names.DEAD_EXCHANGE: "fanout", names.UNROUTED: "fanout"}


async def ensure(connection: Connection, settings: Settings) -> list[str]:
    """Declare every exchange, stream and queue of ours that is missing.

    Returns one line per object that exists with other arguments: it serves all the same. Raises AccessRefused when
    something is missing and the user may not configure, ConnectionLost.
    """
    remarks = []
    for name, kind in EXCHANGES.items():
        remarks += await _exchange(connection, name, kind)
    for stream in (*names.STREAMS, names.ENQUEUED) if settings.enqueue_log else names.STREAMS:
        remarks += await ensure_stream(connection, settings, stream)
    if settings.enqueue_log == "bound":
        remarks += await ensure_log(connection)
    remarks += await _queue(connection, names.LEADER_QUEUE, leader_arguments(connection))
    remarks += await _queue(connection, names.UNROUTED, classic(connection))
    await _bind(connection, names.DEAD, names.DEAD_EXCHANGE, "")
    await _bind(connection, names.UNROUTED, names.UNROUTED, "")
    if detours_rejected(connection):
        remarks += await _queue(connection, names.REJECTED, classic(connection))
        await _bind(connection, names.REJECTED, names.DEAD_EXCHANGE, "")
    return remarks


async def ensure_stream(connection: Connection, settings: Settings, stream: str) -> list[str]:
    """Declare one of our streams if it is missing; returns remarks as `ensure` does."""
    limits = settings.limits(stream)
    arguments: dict[str, Scalar] = {
        "x-queue-type": "stream",
        "x-max-age": limits.max_age,
        "x-max-length-bytes": limits.max_bytes,
        "x-stream-max-segment-size-bytes": limits.segment_bytes,
    }
    return await _queue(connection, stream, arguments)


async def ensure_queue(connection: Connection, settings: Settings, name: str) -> list[str]:
    """Declare the job queue `queue.{name}` and bind it to `jobs.direct` with key `name`; returns remarks.

    Raises ValueError for an invalid name, NotFound when `jobs.direct` is missing.
    """
    if not names.is_queue_name(name):
        raise ValueError(f"a queue's name is 1 to 200 of letters, digits and ._-: and not {name!r}")
    queue = names.broker_queue(name)
    remarks = await _queue(connection, queue, job_queue_arguments(connection, settings))
    await _bind(connection, queue, names.JOBS_EXCHANGE, name)
    if settings.enqueue_log == "bound":
        await log_queue(connection, name)
    return remarks


async def ensure_log(connection: Connection) -> list[str]:
    """Lead to the stream `enqueued`, which exists, what `log_queue` puts on record; returns remarks as `ensure` does.

    LavinMQ asks no alternate exchange once a message has a queue, so there nothing can be put on record this way.
    """
    if not _is_rabbitmq(connection):
        return ["AMQPJOBS_ENQUEUE_LOG=bound needs RabbitMQ: here nothing is put on record; true works everywhere"]
    remarks = await _exchange(connection, names.LOG_EXCHANGE, "fanout")
    await _bind(connection, names.ENQUEUED, names.LOG_EXCHANGE, "")
    return remarks


async def log_queue(connection: Connection, name: str) -> None:
    """Put on record what goes to the job queue `queue.{name}`, for as long as that queue exists.

    A stream bound beside the queue would outlive it: jobs for a queue that was deleted would count as routed, and be
    neither returned nor unrouted. So the queue holds an exchange in being (it is the only one that this is bound to,
    with a key that no job has) whose alternate exchange leads to the stream: the broker deletes both in one step.
    """
    if not _is_rabbitmq(connection):
        return
    beside = names.log_exchange(name)
    # Whoever deletes the queue meanwhile takes the exchange along (NotFound), and who may not declare leaves it to the
    # leader. In this order: an exchange that gets jobs before the queue holds it would outlive the queue.
    with contextlib.suppress(AccessRefused, NotFound, PreconditionFailed):
        await connection.declare_exchange(beside, "direct", auto_delete=True, alternate=names.LOG_EXCHANGE)
        await connection.bind(names.broker_queue(name), beside, NO_KEY)
        await connection.bind_exchange(beside, names.JOBS_EXCHANGE, name)


async def ensure_bare_queue(connection: Connection, settings: Settings, name: str) -> list[str]:
    """Declare the queue `{name}` for clients that publish to it by its bare name, and the mark that workers look for.

    It has no arguments: such clients declare it without any. Raises ValueError for a name that cannot be one.
    """
    if not names.is_queue_name(name) or names.is_reserved(name):
        raise ValueError(f"{name!r} cannot be a job queue's bare name: it is another queue of ours, or no name")
    remarks = await ensure_queue(connection, settings, name)
    remarks += await _queue(connection, name, {})
    return remarks + await _queue(connection, names.bare_mark(name), classic(connection))


def job_queue_arguments(connection: Connection, settings: Settings) -> Mapping[str, Scalar]:
    """How `queue.{name}` is declared by what the settings ask for and the broker has.

    A quorum queue has its priorities without being asked, where it has any (two levels from RabbitMQ 4.0, 0 to 31 from
    4.3), and refuses `x-max-priority`. At its delivery limit, 20 by default from 4.0, it takes a job for poison and
    drops it where no dead-letter exchange is set: how often is too often is for the worker to say.
    """
    if settings.queue_type == "quorum" and _is_rabbitmq(connection):
        return {"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT}
    priorities = {"x-max-priority": settings.max_priority} if settings.max_priority else {}
    return {**priorities, **classic(connection)}


def leader_arguments(connection: Connection) -> Mapping[str, Scalar]:
    """How `jobs.leader` must have been declared: on a queue of another type the broker may let two leaders in."""
    return classic(connection)


def classic(connection: Connection) -> Mapping[str, Scalar]:
    """The explicit queue type, as a virtual host may default to quorum: no priorities, and two exclusive consumers.

    Only RabbitMQ: LavinMQ would answer 406 for a queue that was declared without it.
    """
    return {"x-queue-type": "classic"} if _is_rabbitmq(connection) else {}


def detours_rejected(connection: Connection) -> bool:
    """Whether what a queue dead-letters needs a queue to arrive: RabbitMQ before 3.12 drops it where it meets a stream.

    (rabbitmq-server#7846; the last 3.11 have it too, and there a rejected job is recorded twice.)
    """
    version = connection.server.get("version", "").split(".")
    return _is_rabbitmq(connection) and [int(part) for part in version[:2] if part.isdigit()] < [3, 12]


def _is_rabbitmq(connection: Connection) -> bool:
    return connection.server.get("product") == "RabbitMQ"


async def _queue(connection: Connection, name: str, arguments: Mapping[str, Scalar]) -> list[str]:
    try:
        await connection.declare_queue(name, arguments)
    except PreconditionFailed as drift:
        return [_remark("queue", name, drift) + _asked(arguments, drift)]
    return []


async def _exchange(connection: Connection, name: str, kind: str) -> list[str]:
    try:
        await connection.declare_exchange(name, kind)
    except PreconditionFailed as drift:
        return [_remark("exchange", name, drift)]
    return []


async def _bind(connection: Connection, queue: str, exchange: str, key: str) -> None:
    """A user with few rights may be allowed to use both and not to bind them: then whoever set them up has done it."""
    with contextlib.suppress(AccessRefused):
        await connection.bind(queue, exchange, key)


def _remark(what: str, name: str, drift: PreconditionFailed) -> str:
    return f"{what} {name} exists with other arguments and is used as it is: {drift}"


def _asked(arguments: Mapping[str, Scalar], drift: PreconditionFailed) -> str:
    """What we would have declared, where the broker does not say which argument differs (LavinMQ does not)."""
    if not arguments or any(name in str(drift) for name in arguments):
        return ""
    return "; ours would be " + ", ".join(f"{name}: {value}" for name, value in arguments.items())
