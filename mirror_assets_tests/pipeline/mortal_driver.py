"""A driver in a process of its own that says where it is, and waits there to be killed.

    python -m mirror_assets_tests.pipeline.mortal_driver KIND METASTORE_URL ROOT PIPE [HOLD]

KIND is `write`, one write that counts as number 1 of its application, or `stream`, a query over
the files in ROOT/source with ROOT/checkpoints. Each point it comes to is a line `number:point` in
the pipe: `begin`, `job` (in a task that has begun a file), `files` (written, not committed),
`commit` (done in SQL, nobody told) and `end` (before Spark notes the batch). HOLD is the point at
which it stays until it dies.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.pipeline import table_writer
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.pipeline.streaming import table_sink
from mirror_assets.pipeline.table_writer import Application, NewTable, write_table
from mirror_assets_tests.pipeline.lakehouse import TABLE

JOB = Application(app_id="nightly", version=1)
QUERY = "events"


@dataclass
class Points:
    """Where the driver is; without a pipe, nobody is told."""

    pipe: Path | None = None
    hold: str = ""
    number: int = JOB.version

    def at(self, point: str) -> None:
        _tell(self.pipe, f"{self.number}:{point}")
        if self.hold == f"{self.number}:{point}":
            Event().wait()

    def after(self, point: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def worked(*args: Any, **kwargs: Any) -> Any:
            result = work(*args, **kwargs)
            self.at(point)
            return result

        return worked

    def through(self, frame: DataFrame) -> DataFrame:
        """The same rows; if the point is `job`, they come to a stop in their task."""
        if self.hold != f"{self.number}:job":
            return frame
        pipe, line = self.pipe, self.hold

        def stop(number):
            _tell(pipe, line)
            # until the JVM dies, and the daemon of the Python workers with it
            time.sleep(3600)
            return number

        return frame.select(F.udf(stop, "long")("id").alias("id"))


def _tell(pipe: Path | None, line: str) -> None:
    if pipe is not None:
        with pipe.open("a") as file:
            file.write(f"{line}\n")


def place_of(root: Path) -> str:
    """Where a `Lakehouse` with this root has the table."""
    return str(root / "lake" / TABLE.replace(".", "/"))


def write(spark: SparkSession, access: Access, root: Path) -> table_writer.Written:
    """The write that a killed driver leaves undone, or done."""
    new = NewTable(location=place_of(root))
    rows = spark.range(0, 200, 1, 2)
    return write_table(rows, TABLE, access=access, create=new, application=JOB)


def stream(spark: SparkSession, access: Access, root: Path, points: Points) -> None:
    """Run the query over all that is in its source, a file a batch."""
    new = NewTable(location=place_of(root))
    sink = table_sink(TABLE, access=access, app_id=QUERY, create=new)

    def told(frame: DataFrame, batch: int) -> None:
        points.number = batch
        points.at("begin")
        sink(points.through(frame), batch)
        points.at("end")

    query = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "source"))
        .writeStream.foreachBatch(told)
        .option("checkpointLocation", str(root / "checkpoints"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _end_with_owner() -> None:
    """Standard input closes when the owner is gone; nothing is ever written to it."""
    sys.stdin.read()
    os._exit(1)


def main(kind: str, url: str, root: str, pipe: str, hold: str = "") -> None:
    Thread(target=_end_with_owner, daemon=True).start()
    points = Points(Path(pipe), hold)
    for name, point in (("write_files", "files"), ("written_by", "commit")):
        setattr(table_writer, name, points.after(point, getattr(table_writer, name)))
    conf = {"spark.sql.shuffle.partitions": "2"}
    spark = open_session(SparkOptions(master="local[2]", memory="512m", conf=conf))
    if kind == "write":
        write(spark, Access.to(url), Path(root))
    else:
        stream(spark, Access.to(url), Path(root), points)
    _tell(points.pipe, "finished")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
