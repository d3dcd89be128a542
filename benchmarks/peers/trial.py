"""A trial of the same kind that was written before this project, where its folder is given (TRIAL)."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.product import OURS, Product
from benchmarks.place import Place
from benchmarks.processes import BenchmarkError, Command

QUEUE = "trial"
IN_HAND = 400
"""With its usual 500 the metrics of all that it has in hand do not fit a frame, and it stops, on a busy machine."""
FOREVER = "1000000000"
_OPENED = 'Connection.Open("/")'
_ENDS, _LASTS = "-at<1:", "-at<60:"
"""Its worker ends after a second without a job; the first metric to a new stream can take longer."""


def _folder() -> Path:
    return Path(os.environ.get("TRIAL") or "/nonexistent")


def _in_vhost(place: Place, program: str) -> str:
    """A copy of the program that opens our virtual host: what it declares does not belong into the default one."""
    source = (_folder() / program).read_text("utf-8")
    if _OPENED not in source:
        raise BenchmarkError(f"{program} of the trial does not open the virtual host as {_OPENED}")
    copy = place.work / program
    source = source.replace(_OPENED, f'Connection.Open("{place.vhost}")').replace(_ENDS, _LASTS)
    copy.write_text(source, "utf-8")
    return str(copy)


def _command(place: Place, program: str, *arguments: str) -> Command:
    port = str(place.broker.address.port)
    environment = {**place.environment(), "AMQP_PORT": port, "PREFETCH": str(IN_HAND)}
    return Command([OURS, _in_vhost(place, program), *arguments], environment)


def _enqueue(place: Place, jobs: int, job: str) -> Command:
    """The trial says its rate in words of its own: a program hands it on."""
    del job  # it has one of its own
    publish = _command(place, "publish.py", str(jobs), QUEUE)
    return Command([OURS, "-m", "benchmarks.apps.trial_publisher", *publish.arguments[1:]], publish.environment)


def _missing() -> bool:
    return not (_folder() / "work.py").exists()


TRIAL = Product(
    key="trial",
    title="trial",
    version=lambda: "given in TRIAL",
    how="on its event loop, 400 in hand",
    durability="as amqpjobs",
    jobs=60_000,
    enqueue=_enqueue,
    workers=lambda place, count: [_command(place, "work.py", FOREVER, QUEUE) for _ in range(count)],
    left=lambda place: place.queue(QUEUE),
    empty=lambda place: place.depths.purge(QUEUE),
    missing=_missing,
    proves=False,
)
