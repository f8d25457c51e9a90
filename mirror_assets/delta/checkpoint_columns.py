"""Rows of SQL as the columns of a checkpoint, a batch at a time.

The batches have the names of the metastore's columns, their types are whatever the database's
driver made of them. Maps come as JSON; each distinct text is parsed once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from mirror_assets.delta.arrays import array_of
from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.parsed_columns import ParsedPartitions, ParsedStats
from mirror_assets.delta.table_properties import CheckpointOptions, checkpoint_options

if TYPE_CHECKING:
    from mirror_assets.delta.actions import MetaData, StringMap, TableProtocol

_SCHEMA: Final = checkpoint_schema()
_ADD: Final = _SCHEMA.field("add").type
_REMOVE: Final = _SCHEMA.field("remove").type
_STRING_MAP: Final = _ADD.field("partitionValues").type
_VECTOR: Final = _ADD.field("deletionVector").type
_STATS: Final = "stats"
#: `pa.scalar`, like `pa.array`, would load pandas
_EMPTY: Final = array_of([""], pa.string())[0]
_NULL: Final = pa.nulls(1, pa.string())[0]

#: columns that are null but in tables with certain features
RARE_COLUMNS: Final = {
    "dv_storage_type": pa.string(),
    "dv_path_or_inline_dv": pa.string(),
    "dv_offset": pa.int32(),
    "dv_size_in_bytes": pa.int32(),
    "dv_cardinality": pa.int64(),
    "base_row_id": pa.int64(),
    "default_row_commit_version": pa.int64(),
}
#: the columns of SQL that make an add, and those that make a remove
ADD_COLUMNS: Final = (
    *("path", "partition_values", "size", "modification_time", "stats", "tags"),
    *("clustering_provider", *RARE_COLUMNS),
)
REMOVE_COLUMNS: Final = (
    *("path", "partition_values", "size", "deletion_timestamp", "extended_file_metadata"),
    *RARE_COLUMNS,
)
#: a column in place of all rare ones: null, or a JSON array of their values
PACKED: Final = "rare"


@dataclass(frozen=True)
class CheckpointColumns:
    """The columns of a table's checkpoints: what it asks for beside Delta Spark's own."""

    options: CheckpointOptions
    stats: ParsedStats | None
    partitions: ParsedPartitions | None

    @classmethod
    def of(cls, protocol: TableProtocol, metadata: MetaData) -> CheckpointColumns:
        """As the table's properties say."""
        options = checkpoint_options(protocol, metadata)
        if not options.stats_as_struct:
            return cls(options, None, None)
        return cls(options, ParsedStats(metadata), ParsedPartitions(metadata) or None)

    @cached_property
    def add_type(self) -> pa.StructType:
        """The type of the column `add`."""
        fields = [f for f in _ADD if f.name != _STATS or self.options.stats_as_json]
        if self.partitions is not None:
            fields.append(pa.field("partitionValues_parsed", self.partitions.type))
        if self.stats is not None:
            fields.append(pa.field("stats_parsed", self.stats.type))
        return pa.struct(fields)

    def schema(self, *, v2: bool = False) -> pa.Schema:
        """The schema of a classic checkpoint, or of the top-level file of a V2 one."""
        return _with_add(checkpoint_schema(v2=v2), self.add_type)

    @property
    def sidecar_schema(self) -> pa.Schema:
        """Sidecars hold file actions only (DL-V2-05)."""
        return pa.schema({"add": self.add_type, "remove": _REMOVE})

    @cached_property
    def layout(self) -> str:
        """A short name of schema and codec: sidecars of another one are not named again."""
        text = f"{self.options.codec} {self.sidecar_schema}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def adds(self, batch: pa.RecordBatch) -> pa.StructArray:
        """The column `add` of live files."""
        rows = _Rows(batch)
        texts = rows.text("partition_values")
        stats = rows.stats()
        columns: dict[str, Any] = {
            "path": rows.text("path"),
            "partitionValues": string_maps(texts),
            "size": rows.typed("size", pa.int64()),
            "modificationTime": rows.typed("modification_time", pa.int64()),
            "dataChange": rows.all_false(),
            "tags": string_maps(rows.text("tags")),
            "deletionVector": rows.deletion_vectors(),
            "baseRowId": rows.typed("base_row_id", pa.int64()),
            "defaultRowCommitVersion": rows.typed("default_row_commit_version", pa.int64()),
            "clusteringProvider": rows.text("clustering_provider"),
            _STATS: stats,
        }
        if self.partitions is not None:
            columns["partitionValues_parsed"] = _parsed_partitions(texts, self.partitions)
        if self.stats is not None:
            columns["stats_parsed"] = self.stats.parse(stats)
        return _struct(columns, self.add_type)

    def removes(self, batch: pa.RecordBatch) -> pa.StructArray:
        """The column `remove` of tombstones, without `stats` and `tags` (DL-CP-10)."""
        rows = _Rows(batch)
        columns: dict[str, Any] = {
            "path": rows.text("path"),
            "deletionTimestamp": rows.typed("deletion_timestamp", pa.int64()),
            "dataChange": rows.all_false(),
            "extendedFileMetadata": rows.typed("extended_file_metadata", pa.bool_()),
            "partitionValues": string_maps(rows.text("partition_values")),
            "size": rows.typed("size", pa.int64()),
            "deletionVector": rows.deletion_vectors(),
            "baseRowId": rows.typed("base_row_id", pa.int64()),
            "defaultRowCommitVersion": rows.typed("default_row_commit_version", pa.int64()),
        }
        return _struct(columns, _REMOVE)


def string_maps(texts: pa.StringArray) -> pa.MapArray:
    """JSON objects as maps, in their own order of keys; null stays null."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), _STRING_MAP)
    encoded = texts.dictionary_encode()
    return array_of(_loaded(encoded.dictionary), _STRING_MAP).take(encoded.indices)


class _Rows:
    """A batch of SQL's rows, each column in the type that is wanted."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._count = batch.num_rows
        packed = self._columns.pop(PACKED, None)
        if packed is not None and packed.null_count < self._count:
            self._columns |= _unpacked(packed)

    def typed(self, name: str, kind: pa.DataType) -> pa.Array:
        column = self._columns.get(name)
        if column is None:
            return pa.nulls(self._count, kind)
        return column if column.type == kind else column.cast(kind)

    def text(self, name: str) -> pa.StringArray:
        return self.typed(name, pa.string())

    def stats(self) -> pa.StringArray:
        """An empty text breaks readers: it means none (DL-STAT-01)."""
        column = self.text(_STATS)
        empty = pc.equal(column, _EMPTY)
        return pc.if_else(empty, _NULL, column) if empty.true_count else column

    def all_false(self) -> pa.BooleanArray:
        bits = pa.py_buffer(bytes((self._count + 7) // 8))
        return pa.Array.from_buffers(pa.bool_(), self._count, [None, bits])

    def deletion_vectors(self) -> pa.StructArray:
        kinds = self.text("dv_storage_type")
        if kinds.null_count == self._count:
            return pa.nulls(self._count, _VECTOR)
        columns = {
            "storageType": kinds,
            "pathOrInlineDv": self.text("dv_path_or_inline_dv"),
            "offset": self.typed("dv_offset", pa.int32()),
            "sizeInBytes": self.typed("dv_size_in_bytes", pa.int32()),
            "cardinality": self.typed("dv_cardinality", pa.int64()),
            # transient in Spark: a column of its checkpoints, never a value (DL-DV-08)
            "maxRowIndex": pa.nulls(self._count, pa.int64()),
        }
        return _struct(columns, _VECTOR, mask=kinds.is_null())


def _unpacked(packed: pa.StringArray) -> dict[str, pa.Array]:
    none = [None] * len(RARE_COLUMNS)
    rows = [none if text is None else orjson.loads(text) for text in packed.to_pylist()]
    columns = zip(RARE_COLUMNS.items(), zip(*rows, strict=True), strict=True)
    return {name: array_of(values, kind) for (name, kind), values in columns}


def _struct(
    columns: dict[str, Any], kind: pa.StructType, mask: pa.BooleanArray | None = None
) -> pa.StructArray:
    members = [columns[field.name] for field in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def _loaded(texts: pa.StringArray) -> list[StringMap]:
    return [orjson.loads(text) for text in texts.to_pylist()]


def _parsed_partitions(texts: pa.StringArray, partitions: ParsedPartitions) -> pa.StructArray:
    encoded = texts.dictionary_encode()
    return partitions.parse(_loaded(encoded.dictionary)).take(encoded.indices)


def _with_add(schema: pa.Schema, kind: pa.StructType) -> pa.Schema:
    return schema.set(schema.get_field_index("add"), pa.field("add", kind))
