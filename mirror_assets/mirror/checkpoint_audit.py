"""Looking into checkpoints that are in the store already."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import BinaryIO

from mirror_assets.delta.actions import Sidecar
from mirror_assets.delta.checkpoint import read_checkpoint_batches, read_json_checkpoint
from mirror_assets.delta.checkpoint_content import CheckpointContent, content_of, count_content
from mirror_assets.delta.log_paths import (
    Checkpoint,
    CheckpointName,
    LogPath,
    V2Checkpoint,
    sidecar_name,
)
from mirror_assets.errors import CheckpointMismatchError
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.storage.log_store import LogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What a checkpoint in the store holds, sidecars included."""

    content: CheckpointContent
    size_bytes: int


def audit(store: LogStore, checkpoint: Checkpoint) -> Audit:
    """Decode and count all files of a checkpoint.

    Raises CheckpointMismatchError if a file is missing or cannot be decoded.
    """
    content, size = CheckpointContent(), 0
    for entry in checkpoint.files:
        found, length = _count(store, entry.path)
        content, size = content + found, size + length
        if found.sidecars and isinstance(entry.path, V2Checkpoint):
            for sidecar in read_sidecars(store, entry.path):
                found, length = _count(store, sidecar_name(sidecar.path))
                content, size = content + found, size + length
    return Audit(content=content, size_bytes=size)


def require_same_state(found: CheckpointContent, source: CheckpointSource) -> None:
    """Raise CheckpointMismatchError unless a checkpoint made earlier tells of SQL's state.

    What has expired since may still be in it.
    """
    expected = source.expected()
    expected = replace(
        expected,
        removes=max(expected.removes, found.removes),
        txns=max(expected.txns, found.txns) if source.txns_expire else expected.txns,
        checkpoint_metadatas=found.checkpoint_metadatas,
        sidecars=found.sidecars,
    )
    found.require(expected)


def read_sidecars(store: LogStore, top: CheckpointName) -> list[Sidecar]:
    """The sidecars that the top-level file of a V2 checkpoint names."""
    if isinstance(top, V2Checkpoint) and top.format == "json":
        actions = read_json_checkpoint(store.read(top) or b"")
        return [action for action in actions if isinstance(action, Sidecar)]
    with closing(_open(store, top)) as stream:
        batches = read_checkpoint_batches(stream)
        return [action for batch in batches for action in batch if isinstance(action, Sidecar)]


def _count(store: LogStore, path: LogPath) -> tuple[CheckpointContent, int]:
    if isinstance(path, V2Checkpoint) and path.format == "json":
        data = store.read(path) or b""
        return content_of(read_json_checkpoint(data)), len(data)
    with closing(_open(store, path)) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        return count_content(stream), size


def _open(store: LogStore, path: LogPath) -> BinaryIO:
    stream = store.open(path)
    if stream is None:
        raise CheckpointMismatchError(f"{path.name} of a checkpoint is missing", rule="DL-V2-05")
    return stream
