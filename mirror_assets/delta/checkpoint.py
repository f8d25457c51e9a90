"""Checkpoints: the Parquet form of a table state, and reading every layout of it.

Writers differ in members, their order and nullability, and in where the statistics stand: missing
members are read as null, unknown ones are not read at all (DL-CP-14). Reading goes by batches,
since a checkpoint may hold millions of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.delta.actions import Action, CdcFile, CommitInfo, UnknownAction
from mirror_assets.delta.checkpoint_rows import KEY_MEMBERS, actions_of
from mirror_assets.delta.commit_file import decode
from mirror_assets.errors import MalformedActionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STRING_MAP: Final = pa.map_(pa.string(), pa.string())
_STRINGS: Final = pa.list_(pa.string())
_DELETION_VECTOR: Final = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
        "maxRowIndex": pa.int64(),
    }
)
_COLUMNS: Final[dict[str, dict[str, pa.DataType]]] = {
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "add": {
        "path": pa.string(),
        "partitionValues": _STRING_MAP,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "tags": _STRING_MAP,
        "deletionVector": _DELETION_VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
        "clusteringProvider": pa.string(),
        "stats": pa.string(),
    },
    "remove": {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": _STRING_MAP,
        "size": pa.int64(),
        "deletionVector": _DELETION_VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    },
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _STRING_MAP}),
        "schemaString": pa.string(),
        "partitionColumns": _STRINGS,
        "configuration": _STRING_MAP,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": _STRINGS,
        "writerFeatures": _STRINGS,
    },
    "domainMetadata": {
        "domain": pa.string(),
        "configuration": pa.string(),
        "removed": pa.bool_(),
    },
}
_V2_COLUMNS: Final[dict[str, dict[str, pa.DataType]]] = {
    "checkpointMetadata": {"version": pa.int64(), "tags": _STRING_MAP},
    "sidecar": {
        "path": pa.string(),
        "sizeInBytes": pa.int64(),
        "modificationTime": pa.int64(),
        "tags": _STRING_MAP,
    },
}
#: members that some writers add to those of Spark
_READ_TOO: Final = {"remove": {"tags": _STRING_MAP, "stats": pa.string()}}
_PARSED_STATS: Final = "add.stats_parsed"
_READ_AHEAD: Final = 4 * 1024 * 1024
_NOT_IN_CHECKPOINTS: Final = (CommitInfo, CdcFile, UnknownAction)


def checkpoint_schema(*, v2: bool = False) -> pa.Schema:
    """The Arrow schema of Delta Spark's checkpoints, or of the top-level file of its V2 ones.

    Every member is optional, as Spark writes it (section 15 of the rules).
    """
    columns = _COLUMNS | _V2_COLUMNS if v2 else _COLUMNS
    return pa.schema({name: pa.struct(members) for name, members in columns.items()})


def read_checkpoint_batches(
    source: BinaryIO | pa.Buffer, *, batch_size: int = 16_384
) -> Iterator[list[Action]]:
    """The actions of a Parquet checkpoint, a part of one, or a sidecar, batch by batch.

    Memory is bounded by the batch, not by the file. Within a batch the actions stand by kind, and
    in each kind in the order of the rows.

    Raises MalformedActionError for what is no Parquet file or holds an action without a member
    that the protocol requires.
    """
    try:
        file = pq.ParquetFile(source, buffer_size=_READ_AHEAD, coerce_int96_timestamp_unit="us")
        columns = projection(file)
        instants = int96_columns(file)
        if not columns:
            return
        for batch in file.iter_batches(batch_size=batch_size, columns=columns):
            yield actions_of(batch, instants=instants)
    except (pa.ArrowException, UnicodeDecodeError) as exc:
        message = f"not a readable Parquet checkpoint: {exc}"
        raise MalformedActionError(message, rule="DL-FILE-13") from exc


def read_json_checkpoint(data: bytes) -> list[Action]:
    """The actions of a V2 checkpoint's top-level file in JSON.

    Raises MalformedActionError with the number of the line.
    """
    return [a for a in decode(data).actions if not isinstance(a, _NOT_IN_CHECKPOINTS)]


def _known_members(action: str) -> Mapping[str, pa.DataType]:
    members = (_COLUMNS | _V2_COLUMNS)[action]
    return members | _READ_TOO.get(action, {})


def projection(file: pq.ParquetFile) -> list[str]:
    """The dotted names of the members that are known and there."""
    found = [
        f"{field.name}.{member.name}"
        for field in file.schema_arrow
        if field.name in KEY_MEMBERS and pa.types.is_struct(field.type)
        for member in field.type
        if member.name in _known_members(field.name)
    ]
    return [*found, _PARSED_STATS] if _needs_parsed_stats(file) else found


def _needs_parsed_stats(file: pq.ParquetFile) -> bool:
    """Whether some add may have its statistics in typed columns only."""
    columns = {file.schema.column(i).path: i for i in range(len(file.schema))}
    if not any(path.startswith(f"{_PARSED_STATS}.") for path in columns):
        return False
    stats, path = columns.get("add.stats"), columns.get("add.path")
    if stats is None or path is None:
        return True
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    return any(_may_differ(group.column(stats), group.column(path)) for group in groups)


def _may_differ(left: pq.ColumnChunkMetaData, right: pq.ColumnChunkMetaData) -> bool:
    """Whether two columns may differ in where they are null."""
    one, other = left.statistics, right.statistics
    if one is None or other is None or not (one.has_null_count and other.has_null_count):
        return True
    return bool(one.null_count != other.null_count)


def int96_columns(file: pq.ParquetFile) -> frozenset[str]:
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")
