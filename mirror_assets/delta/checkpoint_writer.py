"""Writing checkpoints: batches of SQL's rows to a Parquet file in Delta Spark's exact schema.

Each kind of action has row groups of its own, gathered to a size that bounds memory. Readers are
strict (section 16 of the rules), so nothing is left to defaults: every member optional, no Arrow
schema, no page index, feature lists only where the version numbers allow them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_assets.delta.actions import ACTION_NAMES, Action, TableProtocol
from mirror_assets.delta.arrays import array_of
from mirror_assets.delta.checkpoint_columns import CheckpointColumns
from mirror_assets.delta.checkpoint_content import CheckpointContent, content_of
from mirror_assets.delta.features import READER_WITH_FEATURES, WRITER_WITH_FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 16 * 1024 * 1024
_MAP_VALUES: Final = ("key_value.key", "key_value.value")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileActions:
    """What the file actions of a checkpoint, or of a sidecar, add up to."""

    adds: int = 0
    removes: int = 0
    #: the sum of the adds' sizes
    size_bytes: int = 0

    @property
    def count(self) -> int:
        """Adds and removes."""
        return self.adds + self.removes

    @property
    def content(self) -> CheckpointContent:
        """As part of a checkpoint."""
        return CheckpointContent(adds=self.adds, removes=self.removes, size_bytes=self.size_bytes)

    def __add__(self, other: FileActions) -> FileActions:
        return FileActions(
            adds=self.adds + other.adds,
            removes=self.removes + other.removes,
            size_bytes=self.size_bytes + other.size_bytes,
        )


class CheckpointWriter:
    """One Parquet file of a checkpoint, whole when the block has ended without an error."""

    def __init__(self, out: BinaryIO, columns: CheckpointColumns, schema: pa.Schema) -> None:
        self._columns = columns
        self._schema = schema
        self._writer = _parquet_writer(out, columns, schema)
        #: what was written so far
        self.written = FileActions()
        self._others = CheckpointContent()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def write_actions(self, actions: Sequence[Action]) -> None:
        """Actions that are no file actions, in one row group."""
        if actions:
            self._others += content_of(actions)
            rows = [{ACTION_NAMES[type(action)]: _members(action)} for action in actions]
            columns = [
                array_of([row.get(field.name) for row in rows], field.type)
                for field in self._schema
            ]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def write_adds(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Live files, as rows of SQL."""
        for group in _gathered(self._columns.adds(batch) for batch in batches):
            self._write_group("add", group)
            size = sum(_sum(chunk, "size") for chunk in group)
            count = sum(len(chunk) for chunk in group)
            self.written += FileActions(adds=count, size_bytes=size)

    def write_removes(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Tombstones, as rows of SQL."""
        for group in _gathered(self._columns.removes(batch) for batch in batches):
            self._write_group("remove", group)
            count = sum(len(chunk) for chunk in group)
            self.written += FileActions(removes=count)

    @property
    def content(self) -> CheckpointContent:
        """What was written so far, by kind."""
        return self._others + self.written.content

    def _write_group(self, name: str, chunks: list[pa.StructArray]) -> None:
        count = sum(len(chunk) for chunk in chunks)
        columns = [
            pa.chunked_array(chunks) if field.name == name else pa.nulls(count, field.type)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        self._writer.write_table(table, row_group_size=count)


def _parquet_writer(
    out: BinaryIO, columns: CheckpointColumns, schema: pa.Schema
) -> pq.ParquetWriter:
    codec = columns.options.codec
    return pq.ParquetWriter(
        out,
        schema,
        version="1.0",
        data_page_version="1.0",
        compression=codec,
        # zstd 3 was slower and larger on such data
        compression_level=1 if codec == "zstd" else None,
        use_dictionary=[*_repeating_columns(columns)],
        write_statistics=["add.path", "remove.path"],
        store_schema=False,
        write_page_index=False,
        store_decimal_as_integer=True,
    )


def _repeating_columns(columns: CheckpointColumns) -> Iterator[str]:
    """The only columns whose values repeat enough for a dictionary."""
    for action in ("add", "remove"):
        yield from (f"{action}.partitionValues.{part}" for part in _MAP_VALUES)
    if columns.partitions is not None:
        yield from (f"add.partitionValues_parsed.{f.name}" for f in columns.partitions.type)


def _gathered(chunks: Iterable[pa.StructArray]) -> Iterator[list[pa.StructArray]]:
    """Chunks for one row group each: a driver's batch alone would be a small one."""
    group: list[pa.StructArray] = []
    rows = size = 0
    for chunk in chunks:
        if not len(chunk):
            continue
        group.append(chunk)
        rows += len(chunk)
        size += chunk.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _sum(chunk: pa.StructArray, member: str) -> int:
    return pc.sum(chunk.field(member)).as_py() or 0


def _members(action: Action) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(action)
    if isinstance(action, TableProtocol):
        members["readerFeatures"] = _features(
            action.reader_features, has_list=action.min_reader_version == READER_WITH_FEATURES
        )
        members["writerFeatures"] = _features(
            action.writer_features, has_list=action.min_writer_version == WRITER_WITH_FEATURES
        )
    return members


def _features(names: list[str] | None, *, has_list: bool) -> list[str] | None:
    """Even an empty list breaks readers where the version has none (DL-CP-11)."""
    return (names or []) if has_list else None
