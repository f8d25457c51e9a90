"""Reading a checkpoint column by column, whatever its layout: what it holds, and in which form.

Millions of file actions become columns of numbers (`file_columns`), batch by batch; only the few
other actions become objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.conformance.checkpoint_entries import Entries
from mirror_assets.conformance.checkpoint_files import (
    Removes,
    presence,
    read_adds,
    read_removes,
)
from mirror_assets.conformance.checks import Found
from mirror_assets.conformance.file_columns import (
    NO_FILES,
    ColumnParts,
    FileColumns,
    Numbers,
)
from mirror_assets.conformance.live_files import PathNames, live_file
from mirror_assets.conformance.row_counts import num_records
from mirror_assets.delta.actions import (
    ACTION_NAMES,
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DeletionVector,
    RemoveFile,
    Sidecar,
)
from mirror_assets.delta.checkpoint import int96_columns, projection
from mirror_assets.delta.checkpoint_rows import KEY_MEMBERS, actions_of, rows_with
from mirror_assets.delta.commit_file import decode
from mirror_assets.delta.log_paths import (
    Checkpoint,
    LogListing,
    LogPath,
    V2Checkpoint,
    sidecar_name,
)
from mirror_assets.errors import MalformedActionError
from mirror_assets.storage.log_source import LogSource

_READ_AHEAD: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = 32_768
#: actions that no checkpoint may hold, and a member by which their presence is told
_FOREIGN: Final = ("commitInfo", "cdc")


@dataclass(slots=True, kw_only=True)
class CheckpointScan:
    """All that one checkpoint says, sidecars included."""

    #: what could not be read, and rows that are no action
    found: list[Found] = field(default_factory=list)
    is_readable: bool = True
    #: everything but adds and removes
    others: list[Action] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: file actions by the file that holds them
    placed: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    codecs: set[str] = field(default_factory=set)
    sidecars: list[Sidecar] = field(default_factory=list)
    #: the adds, ascending by key when all are read
    files: FileColumns = NO_FILES
    parts: ColumnParts = field(default_factory=ColumnParts)
    names: PathNames = field(default_factory=PathNames)
    entries: Entries = field(default_factory=Entries)
    #: deletion vectors of the adds, by path
    vectors: dict[str, DeletionVector] = field(default_factory=dict)
    removes: list[Removes] = field(default_factory=list)
    #: entries with dataChange true
    data_changes: int = 0
    #: files whose statistics are not JSON
    broken_stats: int = 0

    @property
    def actions(self) -> int:
        """All actions, as `_last_checkpoint` counts them."""
        return sum(self.counts.values())

    def removed_keys(self) -> Numbers:
        """`key_hash` of each remove."""
        return _joined([removes.keys for removes in self.removes])

    def removed_times(self) -> Numbers:
        """When each was removed."""
        return _joined([removes.times for removes in self.removes])


def scan_checkpoint(
    source: LogSource, checkpoint: Checkpoint, listing: LogListing
) -> CheckpointScan:
    """Read all files of a checkpoint; what cannot be read is found, not raised."""
    scan = CheckpointScan()
    for entry in checkpoint.files:
        _scan_file(source, entry.path, scan, version=checkpoint.version)
    for sidecar in scan.sidecars:
        path = sidecar_name(sidecar.path)
        if path.name in listing.sidecars:
            _scan_file(source, path, scan, version=checkpoint.version)
        else:
            _unreadable(scan, "DL-V2-05", "the sidecar is missing", path, checkpoint.version)
    scan.files = scan.parts.ordered()
    return scan


def _scan_file(source: LogSource, path: LogPath, scan: CheckpointScan, *, version: int) -> None:
    try:
        if isinstance(path, V2Checkpoint) and path.format == "json":
            data = source.read(path.name)
            scan.size_bytes += len(data)
            _scan_actions(decode(data).actions, path.name, scan)
            return
        with closing(source.open(path.name)) as stream:
            scan.size_bytes += stream.seek(0, 2)
            stream.seek(0)
            _scan_parquet(stream, path.name, scan, version)
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as exc:
        _unreadable(scan, "DL-FILE-13", f"not a readable Parquet file: {exc}", path, version)
    except MalformedActionError as exc:
        _unreadable(scan, exc.rule or "DL-CP-01", exc.message, path, version)


def _unreadable(scan: CheckpointScan, rule: str, message: str, path: LogPath, version: int) -> None:
    scan.is_readable = False
    scan.found.append(Found(rule=rule, message=message, version=version, file=path.name))


def _scan_actions(actions: list[Action], name: str, scan: CheckpointScan) -> None:
    """The top-level file of a V2 checkpoint in JSON."""
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    scan.counts.update(ACTION_NAMES.get(type(action), "unknown") for action in actions)
    scan.placed[name] += len(adds) + len(removes)
    scan.others += [a for a in actions if not isinstance(a, AddFile | RemoveFile)]
    scan.sidecars += [action for action in actions if isinstance(action, Sidecar)]
    known = ((add.path, live_file(add, num_records(add.stats))) for add in adds)
    scan.parts.add(FileColumns.of(known))
    scan.removes.append(Removes.of(removes))
    for add in adds:
        scan.names.note(add.path)
        scan.entries.look_at(add)
        if add.deletion_vector is not None:
            scan.vectors[add.path] = add.deletion_vector


def _scan_parquet(stream: BinaryIO, name: str, scan: CheckpointScan, version: int) -> None:
    file = pq.ParquetFile(stream, buffer_size=_READ_AHEAD, coerce_int96_timestamp_unit="us")
    scan.schemas[name] = file.schema_arrow
    scan.codecs |= _codecs(file.metadata)
    foreign = [n for n in _FOREIGN if n in file.schema_arrow.names]
    columns = [*projection(file), *foreign]
    instants = int96_columns(file)
    row = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
        known = batch.select([n for n in batch.schema.names if n in KEY_MEMBERS])
        _scan_batch(known, name, scan, instants)
        scan.found += _row_breaches(known, batch, name, row, version)
        row += batch.num_rows


def _scan_batch(
    batch: pa.RecordBatch, name: str, scan: CheckpointScan, instants: frozenset[str]
) -> None:
    for kind, column in zip(batch.schema.names, batch.columns, strict=True):
        rows = rows_with(column, KEY_MEMBERS[kind])
        if not len(rows):
            continue
        scan.counts[kind] += len(rows)
        if kind == "add":
            adds = read_adds(rows, scan.entries)
            scan.parts.add(adds.files)
            scan.names.take(adds.paths)
            scan.data_changes += adds.data_changes
            scan.broken_stats += adds.broken_stats
            scan.vectors |= adds.vectors
            scan.placed[name] += len(rows)
        elif kind == "remove":
            removes = read_removes(rows)
            scan.removes.append(removes)
            scan.data_changes += removes.data_changes
            scan.placed[name] += len(rows)
        else:
            single = pa.RecordBatch.from_arrays([rows], names=[kind])
            actions = actions_of(single, instants=instants)
            scan.others += actions
            scan.sidecars += [action for action in actions if isinstance(action, Sidecar)]


def _row_breaches(
    known: pa.RecordBatch, batch: pa.RecordBatch, name: str, before: int, version: int
) -> Iterator[Found]:
    """Rows with no action or several (DL-CP-02), and actions that do not belong here."""
    total = np.zeros(batch.num_rows, np.int8)
    for kind, column in zip(known.schema.names, known.columns, strict=True):
        total += _presence(column, KEY_MEMBERS[kind])
    for kind in _FOREIGN:
        if kind not in batch.schema.names:
            continue
        present = _presence(batch.column(kind), None)
        total += present
        if present.any():
            row = before + int(np.argmax(present)) + 1
            message = f"a row holds a {kind} action"
            yield Found(rule="DL-CP-03", message=message, version=version, file=name, line=row)
    for wrong in np.flatnonzero(total != 1)[:1]:
        message = f"the row holds {int(total[wrong])} actions instead of one"
        row = before + int(wrong) + 1
        yield Found(rule="DL-CP-02", message=message, version=version, file=name, line=row)


def _presence(column: pa.StructArray, member: str | None) -> npt.NDArray[np.int8]:
    """1 where the row holds the action, by a member that is never null in it, or by any."""
    fields = column.flatten()
    if member is not None:
        index = column.type.get_field_index(member)
        fields = [fields[index]] if index >= 0 else []
    found = np.zeros(len(column), np.int8)
    for values in fields:
        found = np.maximum(found, presence(values))
    return found


def _codecs(metadata: Any) -> set[str]:
    groups = (metadata.row_group(index) for index in range(min(metadata.num_row_groups, 1)))
    return {
        group.column(index).compression.lower()
        for group in groups
        for index in range(group.num_columns)
    }


def _joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def is_v2(scan: CheckpointScan) -> bool:
    """Whether the content is that of a V2 checkpoint, whatever the name."""
    return bool(scan.counts["checkpointMetadata"] or scan.counts["sidecar"])


def foreign_actions(scan: CheckpointScan) -> list[Action]:
    """Actions of a JSON checkpoint that do not belong into one."""
    return [action for action in scan.others if isinstance(action, CommitInfo | CdcFile)]
