"""A DataFrame becomes data files: written by Spark, where they stay, described by their footers.

Every attempt writes into a directory of its own. Spark returns when the job has succeeded, with
the files of the winning attempts alone; so what lies in the directory then *is* the list. A job
that failed leaves a directory that no commit names: orphans for a vacuum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from mirror_assets.delta.actions import AddFile
from mirror_assets.delta.locations import normalise_location
from mirror_assets.delta.schema import PrimitiveType, StructType
from mirror_assets.errors import SparkJobError, WriteRefusedError
from mirror_assets.metastore.outcomes import new_commit_id
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.places import add_path, is_data, partition_values, spark_path
from mirror_assets.pipeline.rules import as_refusal
from mirror_assets.pipeline.session import SQL_SETTINGS
from mirror_assets.pipeline.statistics import StatisticsPlan, footer_statistics
from mirror_assets.pipeline.work import SPARK_ERRORS, Facts, run_items
from mirror_assets.storage.data_files import StoredFile

#: Spark tasks that read footers: a footer is a millisecond, a task is many
_FILES_PER_TASK: Final = 25
_MOST_TASKS: Final = 64
_CODEC: Final = "delta.parquet.compression.codec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table as far as its data files go."""

    table: str
    location: str
    schema: StructType
    partition_columns: list[str]
    configuration: dict[str, str]

    @property
    def data_schema(self) -> StructType:
        """The columns that the files hold."""
        held = (f for f in self.schema.fields if f.name not in self.partition_columns)
        return StructType(tuple(held))

    @property
    def partition_types(self) -> dict[str, PrimitiveType]:
        """The types of the partition columns, which are primitive."""
        found = {f.name: f.type for f in self.schema.fields if f.name in self.partition_columns}
        return {n: kind for n, kind in found.items() if isinstance(kind, PrimitiveType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """Data files that no commit names yet."""

    #: below the table's root
    directory: str
    adds: list[AddFile] = field(default_factory=list)
    rows: int = 0

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(add.size for add in self.adds)


def write_files(
    frame: DataFrame, target: Target, access: Access, *, data_change: bool = True
) -> WrittenFiles:
    """Write the rows, which fit the table's schema, and read what the files tell of themselves.

    Raises RowsRefusedError for rows that break a rule of the table, SparkJobError if Spark gave
    up: then no file is part of any commit.
    """
    location = normalise_location(target.location)
    _require_utc(frame, target)
    directory = new_commit_id()
    # "errorifexists", its other name, is not known to Spark Connect
    writer = frame.write.mode("error")
    if codec := target.configuration.get(_CODEC):
        writer = writer.option("compression", codec)
    if target.partition_columns:
        writer = writer.partitionBy(*target.partition_columns)
    try:
        _with_settings(frame, lambda: writer.parquet(spark_path(location, directory)))
    except SPARK_ERRORS as exc:
        refusal = as_refusal(exc, target.table)
        message = f"Spark could not write the data files: {str(exc).partition(chr(10))[0]}"
        raise (refusal or SparkJobError(message, table=target.table)) from exc
    return _described(frame, target, access, directory, data_change=data_change)


def _described(
    frame: DataFrame, target: Target, access: Access, directory: str, *, data_change: bool
) -> WrittenFiles:
    listed = access.data_files(target.location).list(directory)
    # an attempt that lost may write into Spark's scratch directory after the job has cleaned it up
    files = [file for file in listed if is_data(file.path)]
    plan = StatisticsPlan.of(target.schema, target.partition_columns, target.configuration)
    task = partial(_read_footer, access, target.location, plan)
    slices = min(_MOST_TASKS, -(-len(files) // _FILES_PER_TASK))
    facts = run_items(frame.sparkSession, files, task, slices=slices)
    types = target.partition_types
    adds = [
        AddFile(
            path=add_path(file.path),
            partition_values=partition_values(file.path, target.partition_columns, types),
            size=file.size,
            modification_time=file.mtime_ms,
            data_change=data_change,
            stats=fact["stats"],
        )
        for file, fact in zip(files, facts, strict=True)
        if fact["rows"]
    ]
    return WrittenFiles(directory=directory, adds=adds, rows=sum(fact["rows"] for fact in facts))


def _read_footer(access: Access, location: str, plan: StatisticsPlan, file: StoredFile) -> Facts:
    """Runs in a task."""
    with access.data_files(location).open(file.path) as stream:
        found = footer_statistics(pq.read_metadata(stream), plan)
    return {"rows": found.num_records, "stats": found.text}


def _require_utc(frame: DataFrame, target: Target) -> None:
    """Spark names a timestamp's directory by the session's clock."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    is_by_time = any(kind.name == "timestamp" for kind in target.partition_types.values())
    if is_by_time and zone != "UTC":
        message = f"a table partitioned by a timestamp is written in UTC, the session is in {zone}"
        remedy = "set spark.sql.session.timeZone to UTC; `open_session` does"
        raise WriteRefusedError(message, table=target.table, remedy=remedy)


def _with_settings(frame: DataFrame, work: Callable[[], None]) -> None:
    """Timestamps as microseconds, whatever the session says."""
    conf, name = frame.sparkSession.conf, "spark.sql.parquet.outputTimestampType"
    before, wanted = conf.get(name), SQL_SETTINGS[name]
    if before == wanted:
        return work()
    conf.set(name, wanted)
    try:
        return work()
    finally:
        conf.set(name, str(before))
