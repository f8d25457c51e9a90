"""Rows deleted or changed by rewriting the files they are in, and small files put together.

Data files never change: the rows that stay are written anew, and one commit exchanges the files.
Whoever changed what was read here, meanwhile, makes the commit lose; then nothing has happened.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.delta.actions import AddFile, CommitInfo
from mirror_assets.delta.conflicts import PartitionPredicate, ReadSet
from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import SparkJobError, UnsupportedTableError, WriteRefusedError
from mirror_assets.metastore.log_reader import LogReader, TableSummary
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.data_writer import Target, WrittenFiles, write_files
from mirror_assets.pipeline.partitions import cast_name, matching_partitions
from mirror_assets.pipeline.places import file_name, shown_by_spark
from mirror_assets.pipeline.rules import enforced, require_writable
from mirror_assets.pipeline.schemas import quoted, spark_schema
from mirror_assets.pipeline.table_reader import (
    FILE,
    plain_name,
    require_plain,
    rows_of,
    target_of,
)
from mirror_assets.pipeline.table_writer import (
    Written,
    live_files,
    partition_of,
    removal,
    written_by,
)

_TARGET_BYTES: Final = 128 * 1024 * 1024
#: partitions of one job; a plan grows with each
_MOST_BINS: Final = 100


def delete_rows(spark: SparkSession, table: str, condition: str, *, access: Access) -> Written:
    """Delete the rows for which the condition is true.

    A condition on partition columns alone drops files and rewrites none. The outcome is None if
    no row matches: then nothing was committed.
    """
    work = _Rewrite.open(spark, table, access)
    try:
        whole = work.files_of_partitions(condition)
    except WriteRefusedError:
        whole = None
    if whole is not None:
        return work.exchange("DELETE", whole, WrittenFiles(directory=""), condition)
    matching = work.matching(condition)
    touched = [add for add, _ in matching]
    keep = F.coalesce(~F.expr(condition), F.expr("true"))
    kept = rows_of(spark, work.target, touched).where(keep).drop(FILE)
    metrics = {"numDeletedRows": str(sum(count for _, count in matching))}
    return work.rewrite("DELETE", touched, kept, condition, metrics)


def update_rows(
    spark: SparkSession, table: str, condition: str, values: Mapping[str, str], *, access: Access
) -> Written:
    """Give columns new values, as SQL expressions, in the rows for which the condition is true."""
    work = _Rewrite.open(spark, table, access)
    unknown = [name for name in values if work.target.schema.find(name) is None]
    if unknown:
        raise WriteRefusedError(f"{unknown[0]!r} is no column of the table", table=table)
    matching = work.matching(condition)
    touched = [add for add, _ in matching]
    rows = rows_of(spark, work.target, touched).drop(FILE)
    chosen = F.coalesce(F.expr(condition), F.expr("false"))
    types = {field.name: field.dataType for field in spark_schema(work.target.schema).fields}

    def column(name: str) -> Column:
        if name not in values:
            return F.col(quoted(name))
        new = F.expr(values[name]).cast(types[name])
        return F.when(chosen, new).otherwise(F.col(quoted(name))).alias(name)

    changed = rows.select(*(column(name) for name in rows.columns))
    checked = enforced(changed, work.target.schema, work.target.configuration)
    metrics = {"numUpdatedRows": str(sum(count for _, count in matching))}
    return work.rewrite("UPDATE", touched, checked, condition, metrics)


def optimize(
    spark: SparkSession, table: str, *, access: Access, target_bytes: int = _TARGET_BYTES
) -> Written:
    """Put small files of a partition together; no row changes, and readers may go on.

    The outcome is None if nothing is worth it.
    """
    work = _Rewrite.open(spark, table, access)
    bins = _bins(work.files, target_bytes)[:_MOST_BINS]
    if not bins:
        return Written(outcome=None)
    frames = [_of_one_partition(spark, work.target, files).coalesce(1) for files in bins]
    together = reduce(lambda one, other: one.unionAll(other), frames)
    old = [add for files in bins for add in files]
    written = write_files(together, work.target, access, data_change=False)
    known = [_num_records(add) for add in old]
    if None not in known and sum(filter(None, known)) != written.rows:
        message = f"{written.rows} rows were written from files of {sum(filter(None, known))}"
        raise SparkJobError(message, table=table, remedy="nothing was committed; report this")
    reads = ReadSet(files=frozenset(add.path for add in old))
    return work.exchange("OPTIMIZE", old, written, None, reads=reads, data_change=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrite:
    spark: SparkSession
    access: Access
    summary: TableSummary
    target: Target
    files: list[AddFile]

    @classmethod
    def open(cls, spark: SparkSession, table: str, access: Access) -> _Rewrite:
        summary = LogReader(access.metastore()).summary(table)
        target, files = target_of(summary, access), live_files(access, summary)
        require_writable(table, summary.protocol, summary.metadata, target.schema)
        require_plain(summary, files)
        return cls(spark=spark, access=access, summary=summary, target=target, files=files)

    def files_of_partitions(self, condition: str) -> list[AddFile]:
        """The files in partitions that the condition selects; WriteRefusedError if it cannot."""
        if not self.target.partition_columns:
            raise WriteRefusedError("the table has no partitions", table=self.target.table)
        every: set[PartitionPredicate] = {partition_of(add) for add in self.files}
        chosen = matching_partitions(self.spark, self.target, every, condition)
        return [add for add in self.files if partition_of(add) in chosen]

    def matching(self, condition: str) -> list[tuple[AddFile, int]]:
        """The files with rows for which the condition is true, and how many there are."""
        location = normalise_location(self.target.location)
        shown = {
            plain_name(shown_by_spark(location, file_name(add.path, location))): add
            for add in self.files
        }
        rows = rows_of(self.spark, self.target, self.files)
        try:
            found = rows.where(condition).groupBy(FILE).count().collect()
        except AnalysisException as exc:
            reason = str(exc).partition("\n")[0]
            message = f"{condition!r} is no condition on the table's columns: {reason}"
            raise WriteRefusedError(message, table=self.target.table) from exc
        unknown = [row[FILE] for row in found if plain_name(row[FILE]) not in shown]
        if unknown:
            message = f"Spark shows the data file {unknown[0]} under a name that SQL does not know"
            raise WriteRefusedError(message, table=self.target.table)
        return [(shown[plain_name(row[FILE])], row["count"]) for row in found]

    def rewrite(
        self,
        operation: str,
        touched: Sequence[AddFile],
        rows: DataFrame,
        condition: str,
        metrics: Mapping[str, str],
    ) -> Written:
        if not touched:
            return Written(outcome=None)
        if self.summary.metadata.configuration.get("delta.enableChangeDataFeed") == "true":
            message = "the table has a change data feed, whose files this writer does not write"
            raise UnsupportedTableError(message, table=self.target.table)
        written = write_files(rows, self.target, self.access)
        return self.exchange(operation, touched, written, condition, metrics=metrics)

    def exchange(
        self,
        operation: str,
        old: Sequence[AddFile],
        new: WrittenFiles,
        condition: str | None,
        *,
        reads: ReadSet | None = None,
        data_change: bool = True,
        metrics: Mapping[str, str] | None = None,
    ) -> Written:
        """One commit: the old files go, the new ones come."""
        if not old:
            return Written(outcome=None)
        info = _commit_info(operation, old, new, condition, metrics or {})
        outcome = SqlTxnLogWriter(self.access.metastore()).commit(
            self.target.table,
            [info, *(removal(add, data_change=data_change) for add in old), *new.adds],
            read_version=self.summary.version,
            reads=reads or ReadSet(whole_table=True),
        )
        return written_by(outcome, new, old)


def _commit_info(
    operation: str,
    old: Sequence[AddFile],
    new: WrittenFiles,
    condition: str | None,
    metrics: Mapping[str, str],
) -> CommitInfo:
    counts: dict[str, Any] = {
        "numAddedFiles": str(len(new.adds)),
        "numAddedBytes": str(new.size_bytes),
        "numRemovedFiles": str(len(old)),
        "numRemovedBytes": str(sum(add.size for add in old)),
        **metrics,
    }
    predicate = json.dumps([condition] if condition is not None else [])
    return CommitInfo(
        {
            "operation": operation,
            "operationParameters": {"predicate": predicate},
            "operationMetrics": counts,
        }
    )


def _bins(files: Sequence[AddFile], target_bytes: int) -> list[list[AddFile]]:
    """Files of one partition that fit into one; a file that is alone or large enough stays."""
    by_partition: defaultdict[PartitionPredicate, list[AddFile]] = defaultdict(list)
    for add in files:
        if add.size < target_bytes:
            by_partition[partition_of(add)].append(add)
    bins: list[list[AddFile]] = []
    for small in by_partition.values():
        current: list[AddFile] = []
        filled = 0
        for add in sorted(small, key=lambda each: (each.size, each.path)):
            if current and filled + add.size > target_bytes:
                bins.append(current)
                current, filled = [], 0
            current.append(add)
            filled += add.size
        bins.append(current)
    return [each for each in bins if len(each) > 1]


def _of_one_partition(spark: SparkSession, target: Target, files: Sequence[AddFile]) -> DataFrame:
    """The rows of files with the same partition values, which need no look-up then."""
    names = [field.name for field in target.schema.fields]
    data = replace(target, schema=target.data_schema, partition_columns=[])
    rows = rows_of(spark, data, files).drop(FILE)
    for name in target.partition_columns:
        text = F.lit(files[0].partition_values.get(name) or None).cast("string")
        rows = rows.withColumn(name, text.cast(cast_name(target.partition_types[name].name)))
    return rows.select(*(quoted(name) for name in names))


def _num_records(add: AddFile) -> int | None:
    if add.stats is None:
        return None
    found = orjson.loads(add.stats).get("numRecords")
    return found if isinstance(found, int) else None
