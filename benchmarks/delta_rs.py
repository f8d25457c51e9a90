"""The peer: tables and commits of delta-rs (the `deltalake` package)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from benchmarks.samples import (
    NOW_MS,
    PARTITION_COLUMNS,
    SCHEMA,
    adds,
    an_add,
    one_row,
    version_zero,
    write_commit_file,
)
from mirror_assets.delta.actions import AddFile

_CHECKPOINT_EVERY: Final = 100
_ROWS_PER_GROUP: Final = 50_000
_STRINGS: Final = pa.map_(pa.string(), pa.string())
_PROTOCOL: Final = pa.struct(
    {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()},
)
_METADATA: Final = pa.struct(
    {
        "id": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _STRINGS,
        "createdTime": pa.int64(),
    }
)
_ADD: Final = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _STRINGS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
    }
)
_REMOVE: Final = pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64()})
_CHECKPOINT: Final = pa.schema(
    {"protocol": _PROTOCOL, "metaData": _METADATA, "add": _ADD, "remove": _REMOVE}
)


def write_log(table: Path, head: int) -> Path:
    """A table at version `head` with a file per commit, and checkpoints as delta-rs makes them."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    write_commit_file(log, 0, version_zero())
    opened = DeltaTable(table)
    for version in range(1, head + 1):
        write_commit_file(log, version, [an_add(version)])
        if version % _CHECKPOINT_EVERY == 0:
            opened.update_incremental()
            opened.create_checkpoint()
    return table


def append_row(table: Path) -> None:
    """What a writer without our metastore does: read the log, write a file, commit it."""
    write_deltalake(table, one_row(), mode="append")


def append_adds(table: Path, actions: Sequence[AddAction]) -> None:
    """A commit without a data file, by its address."""
    opened = DeltaTable(table)
    schema = opened.schema()
    opened.create_write_transaction(
        list(actions), "append", schema, partition_by=list(PARTITION_COLUMNS)
    )


def add_action(add: AddFile) -> AddAction:
    """The same add in delta-rs's words."""
    return AddAction(
        add.path,
        add.size,
        add.partition_values,
        add.modification_time,
        add.data_change,
        add.stats or "",
    )


def write_checkpointed(table: Path, files: int) -> Path:
    """A table of many live files: one checkpoint holds them all."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    version = 100
    path = log / f"{version:020}.checkpoint.parquet"
    with pq.ParquetWriter(path, _CHECKPOINT, compression="snappy") as writer:
        writer.write_table(_rows(_head_rows()))
        for first in range(0, files, _ROWS_PER_GROUP):
            count = min(_ROWS_PER_GROUP, files - first)
            writer.write_table(_rows([{"add": _members(add)} for add in adds(count, first)]))
    pointer = f'{{"version":{version},"size":{files + 2}}}'
    (log / "_last_checkpoint").write_text(pointer)
    write_commit_file(log, version, [an_add(files - 1)])
    return table


def count_listed_files(table: str) -> int:
    """Open the table and list its files as Arrow."""
    return len(DeltaTable(table).get_add_actions())


def _head_rows() -> list[dict[str, object]]:
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": list(PARTITION_COLUMNS),
        "configuration": {},
        "createdTime": NOW_MS,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def _rows(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_CHECKPOINT)


def _members(add: AddFile) -> dict[str, object]:
    return {
        "path": add.path,
        "partitionValues": add.partition_values,
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": add.data_change,
        "stats": add.stats,
    }
