"""`-m benchmarks.apps.trial_publisher PROGRAM N QUEUE`: runs the trial's publisher and says how long that took."""

from __future__ import annotations

import json
import re
import subprocess
import sys


def main(program: str, jobs: int, queue: str) -> None:
    """Its only word on it is a rate."""
    command = [sys.executable, program, str(jobs), queue]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rate = re.search(r"([0-9]+)/s", told)
    if rate is None:
        sys.exit(f"the trial said no rate: {told.strip()}")
    print(json.dumps({"jobs": jobs, "seconds": jobs / int(rate[1])}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
