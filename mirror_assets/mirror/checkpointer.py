"""Checkpoints and version checksums: built from SQL, verified, uploaded, then pointed at.

    build to a local file -> decode and count -> create, never overwrite -> move the pointer

Only of published versions. A complete checkpoint that is there already is verified and adopted.
Each step can be repeated: a crash in between leaves files that nobody points at, or a checkpoint
that the next run adopts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mirror_assets.delta.checkpoint_content import CheckpointContent, count_content
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.last_checkpoint import CheckpointHint
from mirror_assets.delta.log_paths import (
    Checkpoint,
    CheckpointName,
    ClassicCheckpoint,
    CommitName,
    LogEntry,
    MultiPartCheckpoint,
    V2Checkpoint,
    VersionChecksum,
)
from mirror_assets.delta.version_checksum import TableSummary, version_checksum_bytes
from mirror_assets.errors import TableStateError
from mirror_assets.metastore.checkpoint_builder import columns_of, write_classic
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore
from mirror_assets.mirror.checkpoint_audit import audit, require_same_state
from mirror_assets.mirror.checkpoint_pointer import move_pointer
from mirror_assets.mirror.v2_checkpoint import PlaceParts, write_v2
from mirror_assets.storage.log_store import Different, LogStore, Put

_PREFIX: Final = "mirror-assets-checkpoint-"
#: above it Delta Spark leaves them out of a version checksum, and so do we
_LISTED_IN_CHECKSUM: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCheckpoint:
    """A checkpoint that is in the store and holds SQL's state."""

    version: int
    #: the top-level file, or the first of a foreign checkpoint in parts
    name: CheckpointName
    content: CheckpointContent
    #: of the top-level file, and of all files
    top_bytes: int
    size_bytes: int
    #: whether this run wrote it, or found it
    is_new: bool
    sidecars_written: int = 0
    sidecars_kept: int = 0
    pointer_moved: bool = False


def publish_checkpoint(
    metastore: Metastore,
    store: LogStore,
    table: str,
    version: int,
    *,
    now_ms: int,
    alone: bool = False,
    place_parts: PlaceParts | None = None,
) -> PublishedCheckpoint:
    """Make sure that the version has a checkpoint, and that the pointer is not older.

    With `alone` it is the beginning of a log that has no commit file of its version; `place_parts`
    writes the sidecars of a V2 checkpoint elsewhere than in this process. Raises TableStateError
    for a version that is not published, UnsupportedTableError for a table whose checkpoints are
    not ours to write, CheckpointMismatchError if what was built, or found,
    differs from SQL: then the pointer does not move.
    """
    source = CheckpointSource.open(metastore, table, version, now_ms=now_ms)
    source.require_allowed()
    if not alone:
        _require_published(store, source)
    published = _adopt(store, source) or _write(store, source, place_parts)
    moved = move_pointer(store, hint_of(published, now_ms))
    return replace(published, pointer_moved=moved)


def publish_version_checksum(
    metastore: Metastore, store: LogStore, table: str, version: int
) -> Put | None:
    """Write `<version>.crc` if there is none; None where its content is not known for certain."""
    source = CheckpointSource.open(metastore, table, version, now_ms=0)
    summary = version_summary(source)
    if summary is None:
        return None
    return store.put_if_absent(VersionChecksum(version), version_checksum_bytes(summary))


def version_summary(source: CheckpointSource) -> TableSummary | None:
    """What a version checksum says of the state; None where it could be wrong."""
    facts = source.version_facts()
    metadata = source.summary.metadata
    timestamp = facts.in_commit_timestamp_ms
    enabled = metadata.configuration.get("delta.enableInCommitTimestamps", "").lower()
    if (enabled == "true") != (timestamp is not None):
        return None
    txns, domains = source.txns(), source.domains()
    lists_txns = len(txns) <= _LISTED_IN_CHECKSUM and not source.txns_expire
    return TableSummary(
        txn_id=facts.txn_id,
        table_size_bytes=source.summary.size_bytes,
        num_files=source.summary.num_files,
        num_metadata=1,
        num_protocol=1,
        in_commit_timestamp=timestamp,
        set_transactions=txns if lists_txns else None,
        domain_metadata=domains if len(domains) <= _LISTED_IN_CHECKSUM else None,
        metadata=metadata,
        protocol=source.summary.protocol,
    )


def _require_published(store: LogStore, source: CheckpointSource) -> None:
    """A checkpoint before its commit file would show what is not there yet (DL-FILE-14)."""
    if store.size(CommitName(source.version)) is None:
        message = "no checkpoint of a version whose commit file is not published"
        remedy = "mirror the table first"
        raise TableStateError(
            message, table=source.table.name, version=source.version, remedy=remedy
        )


def _adopt(store: LogStore, source: CheckpointSource) -> PublishedCheckpoint | None:
    """The complete checkpoint of this version that is there; None without one."""
    after = source.version - 1 if source.version else None
    found = store.list(after=after).checkpoints.get(source.version)
    return _verified(store, source, found[0]) if found else None


def _verified(
    store: LogStore, source: CheckpointSource, checkpoint: Checkpoint
) -> PublishedCheckpoint:
    seen = audit(store, checkpoint)
    require_same_state(seen.content, source)
    name = checkpoint.files[0].path
    assert isinstance(name, CheckpointName)  # noqa: S101 - by construction of the listing
    return PublishedCheckpoint(
        version=source.version,
        name=name,
        content=seen.content,
        top_bytes=checkpoint.files[0].size,
        size_bytes=seen.size_bytes,
        is_new=False,
    )


def _write(
    store: LogStore, source: CheckpointSource, place_parts: PlaceParts | None
) -> PublishedCheckpoint:
    with TemporaryDirectory(prefix=_PREFIX) as directory:
        if "v2Checkpoint" in effective_features(source.summary.protocol):
            return _write_v2(store, source, Path(directory), place_parts)
        return _write_classic(store, source, Path(directory))


def _write_classic(
    store: LogStore, source: CheckpointSource, directory: Path
) -> PublishedCheckpoint:
    name = ClassicCheckpoint(source.version)
    file = directory / name.name
    with file.open("w+b") as out:
        write_classic(source, out)
        size = out.tell()
        out.seek(0)
        content = count_content(out, schema=columns_of(source).schema())
    content.require(source.expected())
    if isinstance(store.put_file_if_absent(name, file), Different):
        # another worker was faster: its tombstones, or its Parquet library, differ
        entry = LogEntry(path=name, size=store.size(name) or 0, mtime_ms=source.now_ms)
        return _verified(store, source, Checkpoint(version=source.version, files=(entry,)))
    return PublishedCheckpoint(
        version=source.version,
        name=name,
        content=content,
        top_bytes=size,
        size_bytes=size,
        is_new=True,
    )


def _write_v2(
    store: LogStore,
    source: CheckpointSource,
    directory: Path,
    place_parts: PlaceParts | None,
) -> PublishedCheckpoint:
    files = write_v2(store, source, directory, place_parts)
    return PublishedCheckpoint(
        version=source.version,
        name=files.name,
        content=files.content,
        top_bytes=files.top_bytes,
        size_bytes=files.size_bytes,
        is_new=True,
        sidecars_written=files.sidecars_written,
        sidecars_kept=files.sidecars_kept,
    )


def hint_of(published: PublishedCheckpoint, now_ms: int) -> CheckpointHint:
    """Trino finds a UUID-named checkpoint by `v2Checkpoint` alone (DL-LCP-12)."""
    name = published.name
    v2 = {"path": name.name, "sizeInBytes": published.top_bytes, "modificationTime": now_ms}
    return CheckpointHint(
        version=published.version,
        size=published.content.actions,
        parts=name.parts if isinstance(name, MultiPartCheckpoint) else None,
        size_in_bytes=published.size_bytes,
        num_of_add_files=published.content.adds,
        v2_checkpoint=v2 if isinstance(name, V2Checkpoint) else None,
    )
