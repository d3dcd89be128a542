"""Spark's daemon, which forks the Python processes that read and sum up, with what they need imported.

Spark ends such a process when it had nothing to do for a minute: each new one took a second of CPU to import all this.
A fork has one thread; those that these imports start belong to OpenBLAS and jemalloc, which see to forks themselves.
"""

from __future__ import annotations

from importlib import import_module

from pyspark import daemon

NEEDED = (
    "pyspark.worker",
    "amqpjobs.pipeline.source",
    "amqpjobs.pipeline.decode",
    "amqpjobs.pipeline.files",
    "amqpjobs.pipeline.summing",
    "pandas",  # PyArrow looks for it when it makes its first array
)

if __name__ == "__main__":
    for name in NEEDED:
        import_module(name)
    daemon.manager()
