"""`python -m tests.chaos --seconds 600 --rate 100 --seed 1`: exits non-zero when anything is missing."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.chaos.driver import chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=100.0, help="jobs a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = chaos(Path(folder), seconds=options.seconds, rate=options.rate, seed=options.seed)
        report = asyncio.run(run)
    print(report)
    return 1 if report.lost or report.duplicates > report.bound or any(report.waiting.values()) else 0


sys.exit(main())
