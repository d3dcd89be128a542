"""`python -m amqpjobs.worker`."""

from __future__ import annotations

import sys

from amqpjobs.worker.command import main

if __name__ == "__main__":
    sys.exit(main())
