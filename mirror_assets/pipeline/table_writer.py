"""`write_table`: rows of a DataFrame join a table by one commit in SQL.

    fit the schema -> data files, written where they stay -> footers to statistics -> one commit

Nothing is visible before the commit, and a commit is all or nothing. What lost a race, or broke
half-way, leaves files that no commit names; `vacuum` finds them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession

from mirror_assets.delta.actions import Action, AddFile, CommitInfo, RemoveFile, Txn
from mirror_assets.delta.conflicts import PartitionPredicate, ReadSet
from mirror_assets.delta.schema import parse_schema
from mirror_assets.errors import TableExistsError, TableNotFoundError, WriteRefusedError
from mirror_assets.metastore.log_reader import LogReader, TableSummary
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import AlreadyCommitted, Committed, Conflict, Outcome
from mirror_assets.metastore.registry import create_table
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.data_writer import Target, WrittenFiles, write_files
from mirror_assets.pipeline.door import RowSchema, require_valid
from mirror_assets.pipeline.partitions import matching_partitions
from mirror_assets.pipeline.rules import enforced, require_writable
from mirror_assets.pipeline.schemas import Fit, fit, new_schema_string
from mirror_assets.pipeline.table_reader import target_of

Mode = Literal["append", "overwrite", "errorifexists", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """What a table is made of, if `write_table` finds none of its name."""

    location: str
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A writer that counts its writes, so that none happens twice."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What came of a write."""

    #: None if the table was there, and the mode said to leave it alone
    outcome: Outcome | None
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    removed_files: int = 0
    #: a directory with files that no commit names; None if there are none
    orphans: str | None = None

    @property
    def version(self) -> int:
        """The version that has the rows; WriteRefusedError if there is none."""
        match self.outcome:
            case Committed() | AlreadyCommitted():
                return self.outcome.version
            case Conflict():
                message = f"the commit lost: {self.outcome.message}"
                raise WriteRefusedError(
                    message, table=self.outcome.table, remedy="read again, then repeat the write"
                )
            case None:
                raise WriteRefusedError("nothing was written: the table was there already")


def write_table(
    frame: DataFrame,
    table: str,
    *,
    access: Access,
    mode: Mode = "append",
    replace_where: str | None = None,
    partition_overwrite: bool = False,
    merge_schema: bool = False,
    create: NewTable | None = None,
    check: RowSchema | None = None,
    application: Application | None = None,
    commit_id: str | None = None,
) -> Written:
    """Write the DataFrame's rows to the table.

    `overwrite` replaces all files, those of the partitions that `replace_where` selects (a
    condition on partition columns), or with `partition_overwrite` those of the partitions that
    the new rows are in. With `create` the table is registered first if there is none; `append`
    and `overwrite` then go on, `errorifexists` and `ignore` are about tables that are there.
    `check` is a schema or model of `pandera.pyspark` that the rows must keep.

    Returns a Conflict as the outcome if others changed what the write depends on. Raises
    SchemaMismatchError, RowsRefusedError, WriteRefusedError, UnsupportedTableError,
    TableNotFoundError, TableExistsError and SparkJobError: then nothing was committed.
    """
    _require_sense(mode, replace_where, partition_overwrite=partition_overwrite)
    summary = _found(access, table)
    if summary is not None and mode == "errorifexists":
        raise TableExistsError("the table is there already", table=table)
    if summary is not None and mode == "ignore":
        return Written(outcome=None)
    if summary is not None and (earlier := _earlier(access, table, application)):
        return Written(outcome=earlier)
    if check is not None:
        require_valid(frame, table, check)
    if summary is None:
        summary = _created(frame, table, access, create)
    planned = _planned(frame, summary, access, merge_schema=merge_schema)
    if replace_where is not None or partition_overwrite:
        _require_partitions(frame.sparkSession, planned.target, replace_where)
    written = write_files(planned.frame, planned.target, access)
    replaced = _Replacing(
        spark=frame.sparkSession,
        target=planned.target,
        live=live_files(access, summary) if mode == "overwrite" else [],
        written=written,
    )
    removed, reads = replaced.by(mode, replace_where, partition_overwrite=partition_overwrite)
    actions = [
        _commit_info(mode, planned.target, written, removed, replace_where),
        *planned.metadata_actions(summary),
        *_txn(application),
        *(removal(add) for add in removed),
        *written.adds,
    ]
    outcome = SqlTxnLogWriter(access.metastore()).commit(
        table, actions, read_version=summary.version, reads=reads, commit_id=commit_id
    )
    return written_by(outcome, written, removed)


def written_by(outcome: Outcome, new: WrittenFiles, old: Sequence[AddFile]) -> Written:
    """What came of a commit that adds new files and removes old ones."""
    if not isinstance(outcome, Committed):
        return Written(outcome=outcome, orphans=new.directory if new.adds else None)
    return Written(
        outcome=outcome,
        rows=new.rows,
        files=len(new.adds),
        size_bytes=new.size_bytes,
        removed_files=len(old),
    )


def removal(add: AddFile, *, data_change: bool = True) -> RemoveFile:
    """The action that takes a live file out of the table."""
    return RemoveFile(
        path=add.path,
        deletion_timestamp=time.time_ns() // 1_000_000,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    frame: DataFrame
    target: Target
    fitted: Fit

    def metadata_actions(self, summary: TableSummary) -> list[Action]:
        if self.fitted.schema_string is None:
            return []
        text = self.fitted.schema_string
        return [msgspec.structs.replace(summary.metadata, schema_string=text)]


def _planned(
    frame: DataFrame, summary: TableSummary, access: Access, *, merge_schema: bool
) -> _Planned:
    metadata = summary.metadata
    schema = parse_schema(metadata.schema_string)
    require_writable(summary.table, summary.protocol, metadata, schema)
    fitted = fit(frame, summary.table, metadata.schema_string, merge_schema=merge_schema)
    target = replace(target_of(summary, access), schema=fitted.schema)
    rows = enforced(fitted.frame, fitted.schema, metadata.configuration)
    return _Planned(frame=rows, target=target, fitted=fitted)


def _require_sense(mode: Mode, replace_where: str | None, *, partition_overwrite: bool) -> None:
    if (replace_where is not None or partition_overwrite) and mode != "overwrite":
        raise WriteRefusedError("only the mode 'overwrite' replaces partitions")
    if replace_where is not None and partition_overwrite:
        raise WriteRefusedError("give replace_where or partition_overwrite, not both")


def _require_partitions(spark: SparkSession, target: Target, condition: str | None) -> None:
    """Before any file is written: that there are partitions, and a condition is one on them."""
    if not target.partition_columns:
        message = "the table has no partitions to replace"
        remedy = "overwrite it whole, or change rows with `delete_rows` and an append"
        raise WriteRefusedError(message, table=target.table, remedy=remedy)
    if condition is not None:
        matching_partitions(spark, target, [], condition)


def _found(access: Access, table: str) -> TableSummary | None:
    try:
        return LogReader(access.metastore()).summary(table)
    except TableNotFoundError:
        return None


def _created(frame: DataFrame, table: str, access: Access, create: NewTable | None) -> TableSummary:
    if create is None:
        remedy = "register it with `create`, or give `create=NewTable(location=...)`"
        raise TableNotFoundError("no table of this name is registered", table=table, remedy=remedy)
    create_table(
        access.metastore(),
        table,
        create.location,
        new_schema_string(frame),
        partition_columns=list(create.partition_by),
        configuration=create.properties,
    )
    return LogReader(access.metastore()).summary(table)


def _earlier(
    access: Access, table: str, application: Application | None
) -> AlreadyCommitted | None:
    """Whether the application has come further already: then no file is written in vain."""
    if application is None:
        return None
    txn = LogReader(access.metastore()).txns(table).get(application.app_id)
    if txn is None or txn.version < application.version:
        return None
    head = LogReader(access.metastore()).table(table).head_version
    return AlreadyCommitted(table=table, version=head, reason="txn")


def _txn(application: Application | None) -> list[Txn]:
    if application is None:
        return []
    now_ms = time.time_ns() // 1_000_000
    return [Txn(app_id=application.app_id, version=application.version, last_updated=now_ms)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replacing:
    """The live files that new ones stand for."""

    spark: SparkSession
    target: Target
    live: Sequence[AddFile]
    written: WrittenFiles

    def by(
        self, mode: Mode, condition: str | None, *, partition_overwrite: bool
    ) -> tuple[list[AddFile], ReadSet]:
        """These files, and what was read to know them."""
        if mode != "overwrite":
            return [], ReadSet()
        if condition is None and not partition_overwrite:
            return list(self.live), ReadSet(whole_table=True)
        if condition is not None:
            return self._in(self._selected(condition)), ReadSet(whole_table=True)
        touched = {partition_of(add) for add in self.written.adds}
        return self._in(touched), ReadSet(partitions=frozenset(touched))

    def _in(self, partitions: set[PartitionPredicate]) -> list[AddFile]:
        return [add for add in self.live if partition_of(add) in partitions]

    def _selected(self, condition: str) -> set[PartitionPredicate]:
        every = {partition_of(add) for add in (*self.live, *self.written.adds)}
        chosen = matching_partitions(self.spark, self.target, every, condition)
        outside = [add for add in self.written.adds if partition_of(add) not in chosen]
        if outside:
            values = outside[0].partition_values
            message = f"rows of {values} are outside of replace_where ({condition})"
            remedy = "filter the DataFrame first"
            raise WriteRefusedError(message, table=self.target.table, remedy=remedy)
        return chosen


def live_files(access: Access, summary: TableSummary) -> list[AddFile]:
    """The files of the state that was read."""
    return list(LogReader(access.metastore()).live_files(summary.table, summary.version))


def partition_of(add: AddFile) -> PartitionPredicate:
    """The partition of a file, to compare; empty text is the other spelling of null."""
    return frozenset((name, value or None) for name, value in add.partition_values.items())


def _commit_info(
    mode: Mode,
    target: Target,
    written: WrittenFiles,
    removed: Sequence[AddFile],
    replace_where: str | None,
) -> CommitInfo:
    metrics: dict[str, Any] = {
        "numFiles": str(len(written.adds)),
        "numOutputRows": str(written.rows),
        "numOutputBytes": str(written.size_bytes),
    }
    if mode == "overwrite":
        metrics["numRemovedFiles"] = str(len(removed))
        metrics["numRemovedBytes"] = str(sum(add.size for add in removed))
    names = {"append": "Append", "overwrite": "Overwrite"}
    parameters = {
        "mode": names.get(mode, "Append"),
        "partitionBy": json.dumps(target.partition_columns, separators=(",", ":")),
    }
    if replace_where is not None:
        parameters["predicate"] = replace_where
    return CommitInfo(
        {"operation": "WRITE", "operationParameters": parameters, "operationMetrics": metrics}
    )
