"""`python -m tests.brokers ADDRESS…`: the messaging suite once on each broker (`make test-brokers URLS="…"`).

An address is `amqp-url` or `amqp-url|management-url`; without the latter the HTTP API is looked for at the AMQP port
plus 10,000, as on a broker that was left at its usual ports. Options for pytest come from the variable PYTEST.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from amqpjobs.settings import Settings, redact
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import BrokerError

SUITE = ("tests/conformance", "tests/broker")
MARKS = "not own_node and not command_line"
USAGE = 'usage: make test-brokers URLS="amqp://user:password@host:port/ amqp://…|http://management-host:port"'


def main(entries: Sequence[str]) -> int:
    """Run them all, one after the other; 0 when each ran tests and none failed."""
    if not entries:
        print(USAGE, file=sys.stderr)
        return 2
    lines: list[str] = []
    good = True
    for entry in entries:
        url, _, management = entry.partition("|")
        try:
            name = asyncio.run(introduce(url))
        except BrokerError as error:
            lines.append(f"not tested: {error}")
            good = False
            continue
        print(f"=== {name} at {redact(url)}", flush=True)
        passed, line = run(url, management)
        lines.append(f"{name} at {redact(url)}: {line}")
        good = good and passed
    print("\n".join(lines))
    return 0 if good else 1


async def introduce(url: str) -> str:
    """What the broker says of itself. Raises BrokerError."""
    connection = await connect(Settings(url=url), name="tests")
    await connection.close()
    return f"{connection.server.get('product', 'unknown')} {connection.server.get('version', '')}".rstrip()


def run(url: str, management: str) -> tuple[bool, str]:
    """The suite on one broker: whether it passed, and its figures in a line."""
    told = {"AMQPJOBS_TEST_URL": url, "AMQPJOBS_TEST_MANAGEMENT_URL": management}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *SUITE, "-m", MARKS, "-rs", f"--junitxml={report}"]
        command += shlex.split(os.environ.get("PYTEST", ""))
        status = subprocess.run(command, env={**os.environ, **told}, check=False).returncode
        return status == 0, figures(report)


def figures(report: Path) -> str:
    """`N passed, N failed, N skipped, N errors`, of pytest's report."""
    if not report.exists():
        return "no test was run"
    counts = dict.fromkeys(("tests", "failures", "skipped", "errors"), 0)
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    passed = counts["tests"] - counts["failures"] - counts["skipped"] - counts["errors"]
    others = f"{counts['failures']} failed, {counts['skipped']} skipped, {counts['errors']} errors"
    return f"{passed} passed, {others}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
