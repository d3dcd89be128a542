"""Ports of the loopback interface for servers that start in a moment."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below those that Linux (from 32768) and macOS (from 49152) give to clients: a server that is away for a moment would
find its port taken by somebody's connection, or by one that a client of its own made to itself."""

_kept: dict[int, IO[str]] = {}


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on, kept from other callers on this machine until this process ends.

    Raises OSError when there are not so many.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        if port not in _kept and _free(port) and (kept := _keep(port)) is not None:
            _kept[port] = kept
            found.append(port)
    if len(found) < count:
        raise OSError(f"no {count} ports between {PORTS.start} and {PORTS.stop} of {LOOPBACK} are free")
    return found


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _keep(port: int) -> IO[str] | None:
    """Between the choice and the server's start lie seconds, in which another process may choose as well."""
    folder = Path(tempfile.gettempdir()) / f"amqpjobs-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = (folder / str(port)).open("w")
    try:
        fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        kept.close()
        return None
    return kept
