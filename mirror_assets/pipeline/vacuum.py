"""Data files that nobody needs any more: planned first, deleted only when told to.

Needed is what is live now, was removed within the retention, or is live in a version that the log
shows or will show: a file that SQL removed stays until its removal is published. A file that no
commit names may be of a write that is under way; it stays until it is older than the retention.
That goes too for what a killed driver left in Spark's own scratch directories.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from mirror_assets.delta.locations import Location, normalise_location, within
from mirror_assets.delta.table_properties import interval_ms
from mirror_assets.errors import WriteRefusedError
from mirror_assets.metastore.heads import TableState, closed_error
from mirror_assets.metastore.log_reader import LogReader, TableRecord
from mirror_assets.metastore.retention import needed_paths
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.places import file_name, is_data, is_left_behind
from mirror_assets.storage.data_files import StoredFile

_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK_MS: Final = 7 * 86_400_000
_THREADS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan:
    """What goes, and how much stays."""

    table: str
    cutoff_ms: int
    delete: tuple[StoredFile, ...]
    kept_files: int
    #: files that no commit names, too young to go
    young_files: int
    applied: bool = False

    @property
    def size_bytes(self) -> int:
        """What deleting frees."""
        return sum(file.size for file in self.delete)


def vacuum(
    table: str,
    *,
    access: Access,
    retain_ms: int | None = None,
    allow_short: bool = False,
    apply: bool = False,
    now_ms: int | None = None,
) -> VacuumPlan:
    """Find the Parquet files below the table's root that nobody needs; delete them with `apply`.

    The retention is the table's own (`delta.deletedFileRetentionDuration`, a week by default). A
    shorter one breaks readers and writers that are at work: WriteRefusedError without
    `allow_short`. Raises it too for a table whose files lie at the place of another one, or in
    whose log others have written; TableStateError for one that was released.
    """
    metastore = access.metastore()
    reader = LogReader(metastore)
    record, summary = reader.table(table), reader.summary(table)
    own = interval_ms(summary.metadata.configuration.get(_RETENTION, "")) or _WEEK_MS
    retain = own if retain_ms is None else retain_ms
    if retain < own and not allow_short:
        message = f"files are kept for {own} ms, and {retain} ms were asked for"
        remedy = "give allow_short, if no reader and no writer is at work on the table"
        raise WriteRefusedError(message, table=table, remedy=remedy)
    root = _own_root(record, reader.tables())
    _require_no_foreign_commits(access, record)
    cutoff_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - retain
    # listed first: what is committed between the two is needed, and then known
    files = list(access.data_files(record.location).list())
    needed = {file_name(path, root) for path in _below(needed_paths(metastore, record, cutoff_ms))}
    plan = _plan(table, files, needed, cutoff_ms)
    if apply:
        _delete(access, record, plan)
    return VacuumPlan(
        table=table,
        cutoff_ms=cutoff_ms,
        delete=plan.delete,
        kept_files=plan.kept_files,
        young_files=plan.young_files,
        applied=apply,
    )


def _plan(table: str, files: Iterable[StoredFile], needed: set[str], cutoff_ms: int) -> VacuumPlan:
    """Pure: what of a listing may go."""
    data = [file for file in files if is_data(file.path) or is_left_behind(file.path)]
    spare = [file for file in data if file.path not in needed]
    old = tuple(file for file in spare if file.mtime_ms <= cutoff_ms)
    return VacuumPlan(
        table=table,
        cutoff_ms=cutoff_ms,
        delete=old,
        kept_files=len(data) - len(spare),
        young_files=len(spare) - len(old),
    )


def _own_root(record: TableRecord, tables: Iterable[TableRecord]) -> Location:
    root = normalise_location(record.location)
    inside = [t.name for t in tables if t.name != record.name and _lies_in(root, t)]
    if record.data_location is not None or inside:
        other = inside[0] if inside else record.data_location
        message = f"the table shares its data files with {other}"
        remedy = "clean up with the engine that owns the files"
        raise WriteRefusedError(message, table=record.name, remedy=remedy)
    return root


def _require_no_foreign_commits(access: Access, record: TableRecord) -> None:
    """Files that only a commit of others names look like nobody's."""
    if record.state != TableState.ACTIVE:
        raise closed_error(record)
    beyond = access.log_store(record.location).list(after=record.mirrored_version).commits
    if beyond:
        version = min(beyond)
        message = f"version {version} is in the log, and not as published: its files are not known"
        remedy = (
            f"try again, if a mirror is at work; else `mirror-assets adopt {record.name}`, or "
            f"`mirror-assets diff {record.name} --version {version}`"
        )
        raise WriteRefusedError(message, table=record.name, version=version, remedy=remedy)


def _lies_in(root: Location, other: TableRecord) -> bool:
    places = (other.location, other.data_location)
    return any(within(root.key, normalise_location(p).key) for p in places if p is not None)


def _below(paths: Iterable[str]) -> Iterable[str]:
    """Files elsewhere (shallow clones) are not ours to look at."""
    return (path for path in paths if "://" not in path and not path.startswith(("/", "file:")))


def _delete(access: Access, record: TableRecord, plan: VacuumPlan) -> None:
    files = access.data_files(record.location)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="vacuum") as pool:
        list(pool.map(files.delete, (file.path for file in plan.delete)))
