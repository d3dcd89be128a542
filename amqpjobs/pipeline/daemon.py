"""Spark's daemon, which forks the Python processes that plan, read and sum up, with what they need imported.

Of each batch Spark asks a new process for a schema, and one more for a plan: to import our modules and PyArrow in each
took more than a second of CPU a batch, whatever its size. A fork has one thread; those that these imports start belong
to OpenBLAS and jemalloc, which see to forks themselves.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark import daemon

READS = "pyspark.worker"
NEEDED = {READS: ("amqpjobs.pipeline.decode", "amqpjobs.pipeline.files", "amqpjobs.pipeline.summing")}
"""By the module that the daemon's processes run, beside it and the data source."""


def main() -> None:
    """Import, then fork as asked."""
    runs = sys.argv[1] if len(sys.argv) > 1 else READS
    for name in (runs, "amqpjobs.pipeline.source", *NEEDED.get(runs, ())):
        import_module(name)
    daemon.manager()


if __name__ == "__main__":
    main()
