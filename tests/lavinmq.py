"""`python -m tests.lavinmq [all | PYTEST ARGUMENTS…]`: the messaging suite on a LavinMQ of its own, where there is one.

Looked for: the file that AMQPJOBS_TEST_LAVINMQ names, `lavinmq` on the PATH, and the packed one beside the project
(`../shared/brokers/lavinmq.xz`). Where none is found, a line says so and nothing fails. Without arguments it runs the
part that `make test` runs; `all` is everything that needs no RabbitMQ node of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from amqpjobs.broker.ports import LOOPBACK, free_ports
from tests.brokers import MARKS, SUITE
from tests.conftest import Broker, serving

PACKED = Path(__file__).parents[2] / "shared" / "brokers" / "lavinmq.xz"
CACHE = Path(__file__).parents[1] / ".cache"
_FILES = ("append", "controls", "follow", "inspect", "scheduler", "standby", "topology", "unrouted", "waiting")
QUICK = ("tests/conformance", *(f"tests/broker/test_{name}.py" for name in _FILES))
"""What differs between brokers shows here first: drivers, streams, views, leadership, policies, figures."""


def find() -> Path | None:
    """The program, unpacked where need be; None when there is none here."""
    if named := os.environ.get("AMQPJOBS_TEST_LAVINMQ"):
        return Path(named)
    if installed := shutil.which("lavinmq"):
        return Path(installed)
    if not PACKED.exists():
        return None
    unpacked = CACHE / "lavinmq"
    if not unpacked.exists() or unpacked.stat().st_mtime < PACKED.stat().st_mtime:
        CACHE.mkdir(exist_ok=True)
        fresh = unpacked.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(lzma.decompress(PACKED.read_bytes()))
        fresh.chmod(0o755)
        fresh.rename(unpacked)  # in one step: another run may be looking for it
    return unpacked


@contextlib.contextmanager
def running(program: Path, folder: Path) -> Iterator[Broker]:
    """A node over that data folder, on ports of its own; killed afterwards."""
    amqp, http, metrics = free_ports(3)
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    command = [program, "-D", data, "-b", LOOPBACK, "-p", amqp, "--http-bind", LOOPBACK, "--http-port", http]
    # Its control socket is one for the machine otherwise, and a second node ends at its start.
    command += ["--metrics-http-port", metrics, "--mqtt-port", -1, f"--control-unix-path={folder / 'control'}"]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen([str(each) for each in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    broker = Broker(f"amqp://guest:guest@{LOOPBACK}:{amqp}/", f"http://{LOOPBACK}:{http}")
    try:
        asyncio.run(serving(broker))
        yield broker
    finally:
        server.kill()
        server.wait()


def missing_library(program: Path) -> str | None:
    """What the program cannot be started without, in a line; None when all is there."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    missing = [line.split()[0] for line in told.splitlines() if "not found" in line]
    return f"{', '.join(missing)} is missing: run 'apt-get install libgc1' as root" if missing else None


def main(arguments: Sequence[str]) -> int:
    """Run it; 0 when all passed, or there is no LavinMQ."""
    program = find()
    why = "no lavinmq is found (AMQPJOBS_TEST_LAVINMQ names one)" if program is None else missing_library(program)
    if program is None or why is not None:
        print(f"LavinMQ: not tested, {why}")
        return 0
    chosen = SUITE if list(arguments) == ["all"] else arguments or QUICK
    with tempfile.TemporaryDirectory() as folder, running(program, Path(folder)) as broker:
        overview = broker.overview()
        print(f"=== LavinMQ {overview.get('lavinmq_version')}, {program}", flush=True)
        told = {"AMQPJOBS_TEST_URL": broker.url, "AMQPJOBS_TEST_MANAGEMENT_URL": broker.management_url}
        command = [sys.executable, "-m", "pytest", *chosen, "-m", MARKS, "-q", "-n", os.environ.get("WORKERS", "3")]
        return subprocess.run(command, env={**os.environ, **told}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
