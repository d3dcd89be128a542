"""Schemathesis over the whole HTTP interface, with all its checks: it must find nothing.

    python -m tests.web.examining [--seconds 600] [--examples 50] [--url amqp://… --management http://…]

First open to all, then with a token, then with a viewer's, on a dashboard and a scheduler of its own. Exits with 1 when
anything was found.
`tests/web/test_schemathesis.py` does the same for a few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from amqpjobs.broker.node import PrivateNode
from amqpjobs.settings import Settings
from tests.broker.bench import running
from tests.web.conftest import serving

TOKEN = "a-token-for-schemathesis"
VIEW_TOKEN = "a-viewers-token"
PHASES = "examples,coverage,fuzzing,stateful"


async def examine(address: str, folder: Path, *more: str, seconds: int, examples: int) -> tuple[int, str]:
    """Its exit code, 0 when it found nothing, and what it printed. It keeps its files in `folder`."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--phases", PHASES,
        "--checks", "all", "--max-examples", str(examples), "--max-time", str(seconds), "--warnings", "off",
        "--continue-on-failure", "--suppress-health-check", "all", *more,
    ]  # fmt: skip
    both = asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=both)
    try:
        told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, told.decode()


def authorized(token: str) -> Sequence[str]:
    return ("--header", f"Authorization: Bearer {token}")


async def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = None if options.url else PrivateNode(folder / "node")
        if node is not None:
            await node.start()
        url, management = (options.url, options.management) if node is None else (node.url, node.management_url)
        settings = Settings(url=url, management_url=management, state_dir=folder / "state")
        tokens = {"web_token": SecretStr(TOKEN), "web_view_token": SecretStr(VIEW_TOKEN)}
        guarded = settings.model_copy(update=tokens)
        worst = 0
        try:
            for each, token in ((settings, None), (guarded, TOKEN), (guarded, VIEW_TOKEN)):
                more = () if token is None else authorized(token)
                async with serving(each) as served, running(each):
                    code, told = await examine(
                        served.address, folder, *more, seconds=options.seconds, examples=options.examples
                    )
                print(told)
                worst = max(worst, code)
        finally:
            if node is not None:
                await node.stop()
        return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.web.examining", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=600, help="for each of the three runs (default: 600)")
    parser.add_argument("--examples", type=int, default=50, help="requests of each phase for each operation")
    parser.add_argument("--url", help="of a broker; by default one is started")
    parser.add_argument("--management", help="of its management API")
    sys.exit(asyncio.run(main(parser.parse_args())))
