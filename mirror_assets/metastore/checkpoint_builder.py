"""The files of a checkpoint from SQL, streamed in bounded memory.

A classic checkpoint is one file. A V2 checkpoint is sidecars of file actions and a top-level file
that names them; sidecars are independent of each other and may be built side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from mirror_assets.delta.actions import Action, CheckpointMetadata, Sidecar
from mirror_assets.delta.checkpoint_columns import CheckpointColumns
from mirror_assets.delta.checkpoint_content import CheckpointContent
from mirror_assets.delta.checkpoint_writer import CheckpointWriter, FileActions
from mirror_assets.delta.sidecar_plan import (
    FileKind,
    KnownSidecar,
    Part,
    plan_adds,
    plan_removes,
    target_files,
)
from mirror_assets.metastore.arrow_reader import ArrowReader
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore


def build_checkpoint(
    metastore: Metastore, table: str, version: int, out: BinaryIO, *, now_ms: int
) -> CheckpointContent:
    """Write the classic checkpoint of a version; return what was written.

    Raises UnsupportedTableError for a table whose checkpoints are not ours to write.
    """
    source = CheckpointSource.open(metastore, table, version, now_ms=now_ms)
    source.require_allowed()
    return write_classic(source, out)


def write_classic(source: CheckpointSource, out: BinaryIO) -> CheckpointContent:
    """All actions of the state in one file."""
    columns = columns_of(source)
    with (
        ArrowReader(source.metastore) as reader,
        CheckpointWriter(out, columns, columns.schema()) as writer,
    ):
        writer.write_actions(_state_actions(source))
        writer.write_adds(source.adds(reader=reader))
        writer.write_removes(source.removes(reader=reader))
    return writer.content


def plan_sidecars(
    source: CheckpointSource, known: Sequence[KnownSidecar], known_version: int
) -> list[Part]:
    """The parts of a V2 checkpoint; `known` are the sidecars of the one at an earlier version."""
    adds = [sidecar for sidecar in known if sidecar.kind is FileKind.ADD]
    removes = [sidecar for sidecar in known if sidecar.kind is FileKind.REMOVE]
    target = target_files(source.summary.num_files)
    lost = source.lost_since(known_version) if adds else None
    if lost is None:
        adds, lost, known_version = [], [], -1
    first = min((sidecar.within.first[0] for sidecar in removes), default=0)
    return [
        *plan_adds(adds, lost, source.add_weights(known_version), target),
        *plan_removes(removes, source.remove_weights(first), target),
    ]


def write_sidecar(
    source: CheckpointSource, part: Part, out: BinaryIO, reader: ArrowReader
) -> FileActions:
    """The file actions of one part; the reader serves nobody else meanwhile."""
    columns = columns_of(source)
    with CheckpointWriter(out, columns, columns.sidecar_schema) as writer:
        if part.kind is FileKind.ADD:
            writer.write_adds(source.adds(part, reader))
        else:
            writer.write_removes(source.removes(part, reader))
    return writer.written


def write_top_level(
    source: CheckpointSource, head: CheckpointMetadata, sidecars: Sequence[Sidecar], out: BinaryIO
) -> CheckpointContent:
    """Everything but file actions, and the sidecars that hold those."""
    columns = columns_of(source)
    with CheckpointWriter(out, columns, columns.schema(v2=True)) as writer:
        writer.write_actions([head, *_state_actions(source), *sidecars])
    return writer.content


def columns_of(source: CheckpointSource) -> CheckpointColumns:
    """The columns that the table's checkpoints have at this version."""
    return CheckpointColumns.of(source.summary.protocol, source.summary.metadata)


def _state_actions(source: CheckpointSource) -> list[Action]:
    summary = source.summary
    return [summary.protocol, summary.metadata, *source.txns(), *source.domains()]
