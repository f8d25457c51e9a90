"""A driver of its own, for a master that a test has started: all that Spark does here, once.

    python -m mirror_assets_tests.pipeline.remote_job MASTER METASTORE_URL ROOT

prints what came of it as one JSON document.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.mirror.bulk.checkpoints import build_checkpoint
from mirror_assets.mirror.bulk.logs import backfill
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.metastore_source import FORMAT, register_metastore
from mirror_assets.pipeline.rewriting import delete_rows
from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.pipeline.table_reader import read_table
from mirror_assets.pipeline.table_writer import NewTable, write_table
from mirror_assets.pipeline.work import Workers

TABLE, LATE = "sales.orders", "sales.late"
#: a task that takes longer than the others gets a second attempt at once; a driver that runs its
#: own tasks takes no notice
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
PATIENCE_SECONDS = 120


def meet(place: Path, name: str) -> None:
    """Say that one is here, and wait for another."""
    (place / name).touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(list(place.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)


def executors(workers: Workers, root: str) -> int:
    """How many take part; a quick one would do all tasks before the other is asked."""
    place = Path(root) / "executors"
    place.mkdir()

    def task(_: int) -> dict[str, Any]:
        meet(place, str(os.getppid()))
        return {"pid": os.getppid()}

    return len({fact["pid"] for fact in workers.run(list(range(8)), task)})


def write_with_a_slow_attempt(spark: SparkSession, access: Access, root: str) -> dict[str, Any]:
    """The first attempt at a partition has begun its file, and waits until a second one runs."""
    attempts = Path(root) / "attempts"
    attempts.mkdir()

    def slow(number):
        context = TaskContext.get()
        if context.partitionId() == 1:
            meet(attempts, str(context.attemptNumber()))
        return number

    frame = spark.range(0, 200, 1, 2).select(F.udf(slow, "long")("id").alias("id"))
    new = NewTable(location=f"{root}/late")
    written = write_table(frame, LATE, access=access, create=new)
    seen = sorted(int(file.name) for file in attempts.iterdir())
    return {"attempts": seen, "rows": written.rows, "files": written.files}


def main(master: str, url: str, root: str) -> None:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
        **SPECULATION,
    }
    spark = open_session(SparkOptions(master=master, memory="512m", conf=conf))
    access, workers = Access.to(url), Workers(spark)
    properties = {"delta.feature.v2Checkpoint": "supported"}
    new = NewTable(location=f"{root}/orders", partition_by=["p"], properties=properties)
    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "concat('p:', id % 3) as p")
    written = write_table(frame, TABLE, access=access, create=new)
    delete_rows(spark, TABLE, "id >= 900", access=access)
    is_cluster = master.startswith("spark://")
    late = write_with_a_slow_attempt(spark, access, root) if is_cluster else None
    published = backfill(workers, access)
    built = build_checkpoint(workers, access, TABLE)
    register_metastore(spark, access)
    files = spark.read.format(FORMAT).options(view="files", table=TABLE).load()
    document = {
        "rows": written.rows,
        "late": late,
        "read": read_table(spark, TABLE, access=access).count(),
        "published": published,
        "checkpoint": built.version,
        "files": files.where("size > 0").count(),
        "executors": executors(workers, root) if is_cluster else None,
    }
    sys.stdout.write(json.dumps(document))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
