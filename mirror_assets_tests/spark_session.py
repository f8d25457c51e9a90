"""One Spark session with Delta and an S3 client for all tests of a process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirror_assets.storage.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The jars are a matter of the JVM's start, so there is one kind of session for all.

    A task may fail twice.
    """
    from mirror_assets.pipeline.session import (  # noqa: PLC0415 - slow to import, few tests need it
        SparkOptions,
        open_session,
    )

    settings = {
        # Tests are over before the second compiler has paid for itself: it takes half of the CPU.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # What has ended is not kept: there is nobody to look at it, and the heap is small.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    session = open_session(
        SparkOptions(master="local[2,3]", delta=True, s3=StoreOptions(), conf=settings)
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
