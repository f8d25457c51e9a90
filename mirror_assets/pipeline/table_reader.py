"""`read_table`: a table as a DataFrame, planned from SQL, before or after it is mirrored.

Spark's own Parquet scan reads the files that SQL says are live at the version; the values of
partition columns come from SQL too. A file that Spark shows under a name that SQL does not know
fails the query: no row is left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.delta.actions import AddFile
from mirror_assets.delta.locations import normalise_location
from mirror_assets.delta.schema import parse_schema
from mirror_assets.errors import UnsupportedTableError, VersionNotFoundError
from mirror_assets.metastore.log_reader import LogReader, TableSummary
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.data_writer import Target
from mirror_assets.pipeline.partitions import cast_name
from mirror_assets.pipeline.places import file_name, shown_by_spark, spark_path
from mirror_assets.pipeline.rules import refusing
from mirror_assets.pipeline.schemas import quoted, spark_schema

#: the file of a row as Spark shows it; only inside this package
FILE: Final = "__mirror_assets_file"


def read_table(
    spark: SparkSession,
    table: str,
    *,
    access: Access,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> DataFrame:
    """The table's rows at a version or at a time (aware), now by default.

    Raises TableNotFoundError, VersionNotFoundError, and UnsupportedTableError for a table with
    deletion vectors or column mapping, which Spark's scan does not know.
    """
    reader = LogReader(access.metastore())
    if timestamp is not None:
        if version is not None:
            raise VersionNotFoundError("give a version or a timestamp, not both", table=table)
        version = reader.version_at(table, int(timestamp.timestamp() * 1000))
    summary = reader.summary(table, version)
    target = target_of(summary, access)
    files = list(reader.live_files(table, summary.version))
    require_plain(summary, files)
    return rows_of(spark, target, files).drop(FILE)


def target_of(summary: TableSummary, access: Access) -> Target:
    """Where and how the table's data files lie."""
    record = LogReader(access.metastore()).table(summary.table)
    return Target(
        table=summary.table,
        location=record.data_location or record.location,
        schema=parse_schema(summary.metadata.schema_string),
        partition_columns=summary.metadata.partition_columns,
        configuration=summary.metadata.configuration,
    )


def require_plain(summary: TableSummary, files: Sequence[AddFile]) -> None:
    """Raise UnsupportedTableError where a Parquet scan would not give the table's rows."""
    problem = None
    if summary.metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        problem = "column mapping"
    elif any(add.deletion_vector is not None for add in files):
        problem = "deletion vectors"
    if problem is not None:
        message = f"the table has {problem}, which is not read by way of SQL"
        remedy = "mirror the table, and read it with a reader of Delta"
        raise UnsupportedTableError(
            message, table=summary.table, version=summary.version, remedy=remedy
        )


def rows_of(spark: SparkSession, target: Target, files: Sequence[AddFile]) -> DataFrame:
    """The rows of the files with the table's columns, and FILE, the file each is in."""
    location = normalise_location(target.location)
    whole = spark_schema(target.schema)
    if not files:
        return spark.createDataFrame([], whole).withColumn(FILE, F.lit(None).cast("string"))
    names = {add.path: file_name(add.path, location) for add in files}
    paths = [spark_path(location, name) for name in names.values()]
    scanned = (
        spark.read.schema(spark_schema(target.data_schema))
        .option("globPaths", "false")
        .option("recursiveFileLookup", "true")
        .parquet(*paths)
        .select("*", F.col("_metadata.file_path").alias(FILE))
    )
    if not target.partition_columns:
        return scanned.select(*(quoted(f.name) for f in whole.fields), FILE)
    shown = {shown_by_spark(location, names[add.path]): add for add in files}
    known = _partitions(spark, target, shown)
    joined = scanned.join(F.broadcast(known), _same_file(scanned, known), "left")
    missing = refusing("Spark shows a data file under a name that SQL does not know")
    file = F.when(known["__known"], scanned[FILE]).otherwise(missing)
    columns = [
        known[name].alias(name) if name in target.partition_columns else scanned[quoted(name)]
        for name in whole.names
    ]
    return joined.select(*columns, file.alias(FILE))


def plain_name(shown: str) -> str:
    """One spelling of a name that Hadoop shows as `file:/` or `file:///`."""
    return shown.replace("file:///", "file:/", 1)


def _same_file(scanned: DataFrame, known: DataFrame) -> Column:
    plain = F.regexp_replace(scanned[FILE], "^file:///", "file:/")
    return plain == known["__file"]


def _partitions(spark: SparkSession, target: Target, shown: dict[str, AddFile]) -> DataFrame:
    columns = target.partition_columns
    names = ", ".join(f"{quoted(name)} string" for name in columns)
    rows = [
        (plain_name(file), True, *(add.partition_values.get(c) or None for c in columns))
        for file, add in shown.items()
    ]
    texts = spark.createDataFrame(rows, f"__file string, __known boolean, {names}")
    types = target.partition_types
    typed = [F.col(quoted(name)).cast(cast_name(types[name].name)).alias(name) for name in columns]
    return texts.select("__file", "__known", *typed)
