"""Ocypod's own configuration file, as far as it has a meaning here."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from amqpjobs.model.tracked_durations import seconds, size

log = logging.getLogger("amqpjobs.web")

PORT = 8023
_OWN_CLOCK = "the scheduler acts the moment that a job is due, and does not scan"
IGNORED = {
    "server": {
        "threads": "one process serves; start several for more",
        "timeout_check_interval": _OWN_CLOCK,
        "retry_check_interval": _OWN_CLOCK,
        "expiry_check_interval": _OWN_CLOCK,
    },
    "redis": {"url": "jobs are kept in the broker (AMQPJOBS_URL)", "threads": "jobs are kept in the broker"},
}


class BadOcypodFile(Exception):
    """The file cannot be used; one line says why."""


class OcypodConfig(NamedTuple):
    """What its file says: where to serve (None: not said), bytes of a body, seconds before a job is handed out."""

    host: str | None = None
    port: int | None = None
    max_body_size: int = 256_000
    next_job_delay: float = 0.0


def read(path: Path | None) -> OcypodConfig:
    """The configuration in a file; of none, the defaults. Raises BadOcypodFile.

    What has no meaning here is named in a line of the log, with the reason.
    """
    if path is None:
        return OcypodConfig()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return _config(path, found)
    except OSError as error:
        raise BadOcypodFile(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadOcypodFile(f"{path}: {error}") from error


def _config(path: Path, found: dict[str, Any]) -> OcypodConfig:
    for section, given in found.items():
        if section not in IGNORED or not isinstance(given, dict):
            raise ValueError(f"[{section}] is no section of Ocypod's; these are [server] and [redis]")
        for name in given.keys() & IGNORED[section].keys():
            log.info("%s: %s.%s is ignored: %s", path, section, name, IGNORED[section][name])
    server = {name: value for name, value in found.get("server", {}).items() if name not in IGNORED["server"]}
    unknown = [f"server.{name}" for name in server.keys() - set(OcypodConfig._fields)]
    unknown += [f"redis.{name}" for name in found.get("redis", {}).keys() - IGNORED["redis"].keys()]
    if unknown:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}")
    host, port = server.get("host", "127.0.0.1"), server.get("port", PORT)
    if not isinstance(host, str) or type(port) is not int or not 0 <= port < 65_536:
        raise ValueError("server.host is a string and server.port a number below 65536")
    return OcypodConfig(
        host, port, size(server.get("max_body_size", "256kB")), seconds(server.get("next_job_delay", "0s"))
    )
