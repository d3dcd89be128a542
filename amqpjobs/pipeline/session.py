"""The Spark session of the pipeline: local by default, a cluster's by `AMQPJOBS_SPARK_MASTER`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from amqpjobs.pipeline.sink import AmqpJobs
from amqpjobs.pipeline.source import AmqpStream
from amqpjobs.settings import Settings

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A JVM that is soon there and never fast: for tests, and for runs of minutes."""


def session(settings: Settings, extra: Mapping[str, str] | None = None, *, quick: bool = False) -> SparkSession:
    """The session, started unless there is one; `extra` are Spark's own settings. Our data sources are registered."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java = "-Duser.timezone=UTC" + (f" {QUICK_JAVA}" if quick else "")
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java,
        "spark.python.daemon.module": "amqpjobs.pipeline.daemon",
        "spark.sql.sources.partitionOverwriteMode": "static",
        "spark.sql.files.ignoreMissingFiles": "false",
    }
    builder = SparkSession.builder.appName("amqpjobs pipeline").master(settings.spark_master)
    for name, value in {**defaults, **(extra or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(AmqpStream)
    spark.dataSource.register(AmqpJobs)
    return spark
