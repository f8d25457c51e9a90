"""The rebuilt corpora read by Delta Spark, on local disk and on a real S3 server.

On disk it reads a table three times: as it was, rebuilt, and cleaned. From S3 it reads what a
cleanup left: of both copies Delta opens the same checkpoint. A read takes it most of a second, so
that MIRROR_TEST_CORPORA_STEP can have it take only every so many tables.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets_tests.acceptance.readers import (
    Rows,
    spark_live_files,
    spark_reader,
)
from mirror_assets_tests.acceptance.rebuilt import compared, on_disk, rebuilt_on_s3, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from mirror_assets_tests.acceptance.readers import Answer
    from mirror_assets_tests.acceptance.rebuilt import Corpus
    from mirror_assets_tests.store_services import S3Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("spark"),
]

#: every so many tables are read on disk, and of those from S3; here it is all of them
STEP, STEP_ON_S3 = 1, 1
SIDE_BY_SIDE = 2
#: what is compiled and cut in pieces for a table of ten rows takes longer than the rows
IN_A_HURRY = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "false",
}


@pytest.fixture(scope="module")
def quick_spark(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name, None) for name in IN_A_HURRY}
    for name, value in IN_A_HURRY.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture(scope="module")
def read_here(quick_spark: SparkSession) -> Callable[[str], Answer]:
    """What was read of a place once is not read again."""
    return cache(rows_or_files(quick_spark))


def rows_or_files(spark: SparkSession, s3: S3Server | None = None) -> Callable[[str], Answer]:
    """Rows, or the live files of a table whose data files are absent."""
    rows = spark_reader(spark, s3)
    delta: Any = spark._jvm.org.apache.spark.sql.delta

    def read(root: str) -> Answer:
        answer = rows(root)
        if not isinstance(answer, Rows):
            answer = spark_live_files(spark, root, s3)
        # Delta keeps the state of every table for an hour, until the heap is full of them.
        delta.DeltaLog.clearCache()
        return answer

    return read


def test_delta_spark_reads_the_same_rows(
    corpus: Corpus, read_here: Callable[[str], Answer]
) -> None:
    chosen = spread(on_disk(corpus), STEP)
    verdict = compared(chosen, read_here, side_by_side=SIDE_BY_SIDE)
    assert verdict.differences == []
    assert verdict.originals > 0.9 * len(chosen)
    assert verdict.copies > 1.7 * len(chosen)


def test_delta_spark_reads_the_same_rows_from_a_real_s3_server(
    corpus: Corpus,
    read_here: Callable[[str], Answer],
    quick_spark: SparkSession,
    seaweedfs: S3Server,
) -> None:
    root = str(uuid.uuid4())
    # As a cleanup leaves it, or as rebuilt where cleanup is not ours.
    chosen = [
        rebuilt_on_s3(corpus, copy, seaweedfs, root, copy.kinds[-1:])
        for copy in spread(spread(corpus.copies, STEP), STEP_ON_S3)
    ]
    there = rows_or_files(quick_spark, seaweedfs)
    verdict = compared(chosen, read_here, there, side_by_side=SIDE_BY_SIDE)
    assert verdict.differences == []
    assert verdict.originals > 0.9 * len(chosen)
    assert verdict.copies > 0.9 * len(chosen)
