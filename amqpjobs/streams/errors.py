"""What can go wrong at the broker, in our words. No driver exception leaves `amqpjobs.streams`."""

from __future__ import annotations


class BrokerError(Exception):
    """Anything that the broker, or the way to it, did not do."""


class BrokerUnavailable(BrokerError):
    """No connection within the time allowed; nothing was sent."""


class ConnectionLost(BrokerError):
    """The channel or connection went away; what was unconfirmed may or may not have arrived."""


class NotReady(ConnectionLost):
    """404 with a reason that passes: the queue exists and its node is starting, or away. Trying again helps."""


class ConsumerCancelled(ConnectionLost):
    """The broker ended a subscription: its queue or stream was deleted, or its node left."""


class Refused(BrokerError):
    """The broker said no: rights, arguments or a name that is taken. Trying again changes nothing."""


class AccessRefused(Refused):
    """403: no rights, or an exclusive consumer is there already."""


class NotFound(Refused):
    """404: no such queue, stream, exchange or virtual host."""


class PreconditionFailed(Refused):
    """406: the object exists with other arguments; the message names the argument."""


class Unroutable(BrokerError):
    """The broker returned the message: no queue is bound for its key."""


class Nacked(BrokerError):
    """The broker took the message and refused to keep it."""


class ConfirmTimeout(BrokerError):
    """No confirm within the time allowed (broker blocked, or too slow): the message may have arrived."""


class TooLarge(BrokerError):
    """The message would not fit the broker; it was not sent."""


def again(error: BrokerError) -> BrokerError:
    """The same for another who waits: a shared one would collect the tracebacks of them all."""
    return type(error)(*error.args)


def missing(text: str) -> BrokerError:
    """What a 404 means. Just after a start RabbitMQ answers so for queues and streams that it has and does not serve
    yet; taken for missing ones, they would be declared, refused, and the work given up."""
    return NotReady(text) if "down or inaccessible" in text else NotFound(text)
