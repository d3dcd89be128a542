"""Background jobs for any language that speaks AMQP 0-9-1, remembered in the broker's own streams.

Names are loaded when first used: a module of jobs needs `job` alone, and pays for no broker driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqpjobs.batch import PartlyEnqueued
    from amqpjobs.client import Client
    from amqpjobs.errors import Fail, JobTimeout, Retry, Snooze, UnknownJobClass
    from amqpjobs.jobs import JobFunction, Registry, job, recurring
    from amqpjobs.settings import Settings
    from amqpjobs.streams.errors import BrokerError, BrokerUnavailable, ConfirmTimeout, Refused, TooLarge
    from amqpjobs.sync import SyncClient
    from amqpjobs.worker.context import JobContext, current

__version__ = "0.1.0"

__all__ = [
    "BrokerError",
    "BrokerUnavailable",
    "Client",
    "ConfirmTimeout",
    "Fail",
    "JobContext",
    "JobFunction",
    "JobTimeout",
    "PartlyEnqueued",
    "Refused",
    "Registry",
    "Retry",
    "Settings",
    "Snooze",
    "SyncClient",
    "TooLarge",
    "UnknownJobClass",
    "current",
    "job",
    "recurring",
]

_HOMES = {
    "amqpjobs.batch": ("PartlyEnqueued",),
    "amqpjobs.client": ("Client",),
    "amqpjobs.errors": ("Fail", "JobTimeout", "Retry", "Snooze", "UnknownJobClass"),
    "amqpjobs.jobs": ("JobFunction", "Registry", "job", "recurring"),
    "amqpjobs.settings": ("Settings",),
    "amqpjobs.streams.errors": ("BrokerError", "BrokerUnavailable", "ConfirmTimeout", "Refused", "TooLarge"),
    "amqpjobs.sync": ("SyncClient",),
    "amqpjobs.worker.context": ("JobContext", "current"),
}
_HOME = {name: module for module, exported in _HOMES.items() for name in exported}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'amqpjobs' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
