"""Who loses when two commits meet: Delta's conflict rules, pure.

A commit that was prepared at `read_version` is compared with every commit that won since. What
Delta Spark resolves by merging (an identity column's high water mark, an enabled feature) is a
conflict here: repeating a commit is safe, merging metadata is guessing. The one exception is the
`delta.rowTracking` domain, whose high water mark the writer recomputes at the new version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    MetaData,
    RemoveFile,
    StringMap,
    TableProtocol,
    Txn,
    by_kind,
)

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
ISOLATION_PROPERTY: Final = "delta.isolationLevel"

#: equalities that hold together, e.g. {("day", "2026-01-01")}; names are physical ones
PartitionPredicate = frozenset[tuple[str, str | None]]


class IsolationLevel(StrEnum):
    """How much of what others did meanwhile matters; the strictest first."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    #: never a table's level: for commits that change no data
    SNAPSHOT_ISOLATION = "SnapshotIsolation"


class ConflictReason(StrEnum):
    """Why a commit lost."""

    PROTOCOL_CHANGED = "protocol_changed"
    METADATA_CHANGED = "metadata_changed"
    CONCURRENT_APPEND = "concurrent_append"
    CONCURRENT_DELETE_READ = "concurrent_delete_read"
    CONCURRENT_DELETE_DELETE = "concurrent_delete_delete"
    CONCURRENT_TRANSACTION = "concurrent_transaction"
    CONCURRENT_DOMAIN_METADATA = "concurrent_domain_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A commit lost against `winning_version`; reading again from there may help."""

    reason: ConflictReason
    winning_version: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a commit depends on. Empty: it read nothing."""

    whole_table: bool = False
    files: frozenset[str] = frozenset()
    partitions: frozenset[PartitionPredicate] = frozenset()
    app_ids: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether no data was read; application ids are no data."""
        return not (self.whole_table or self.files or self.partitions)

    def covers(self, partition_values: Mapping[str, str | None] | None) -> bool:
        """Whether a file with these partition values lies in what was read; None: unknown."""
        if self.whole_table:
            return True
        if partition_values is None:
            return bool(self.partitions)
        return any(_matches(predicate, partition_values) for predicate in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A commit that wants to happen, as far as conflicts go."""

    read: ReadSet = field(default_factory=ReadSet)
    isolation: IsolationLevel = IsolationLevel.SERIALIZABLE
    added_paths: frozenset[str] = frozenset()
    removed_paths: frozenset[str] = frozenset()
    changes_metadata: bool = False
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds files and read nothing."""
        return not self.removed_paths and self.read.is_empty

    @classmethod
    def of(
        cls,
        actions: Sequence[Action],
        *,
        read: ReadSet | None = None,
        table_isolation: IsolationLevel = IsolationLevel.SERIALIZABLE,
    ) -> Intent:
        """What these actions intend; the isolation level is relaxed where they change no data."""
        kinds = by_kind(actions)
        return cls(
            read=read or ReadSet(),
            isolation=isolation_to_use(actions, table_isolation),
            added_paths=frozenset(a.path for a in kinds.get(AddFile, ())),
            removed_paths=frozenset(a.path for a in kinds.get(RemoveFile, ())),
            changes_metadata=MetaData in kinds,
            app_ids=frozenset(a.app_id for a in kinds.get(Txn, ())),
            domains=frozenset(a.domain for a in kinds.get(DomainMetadata, ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WinningCommit:
    """A commit that others made since the read version, as far as conflicts go."""

    version: int
    changes_protocol: bool = False
    changes_metadata: bool = False
    #: files that brought rows (`dataChange`): path to partition values
    added: Mapping[str, StringMap] = field(default_factory=dict)
    #: every file removed, also by a rewrite: path to partition values, None if not recorded
    removed: Mapping[str, StringMap | None] = field(default_factory=dict)
    is_blind_append: bool = False
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    @classmethod
    def of(cls, version: int, actions: Sequence[Action]) -> WinningCommit:
        """What a commit's actions mean to others; a blind append is one that says so."""
        adds = [a for a in actions if isinstance(a, AddFile)]
        removes = [a for a in actions if isinstance(a, RemoveFile)]
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        says_blind = info is not None and info.get("isBlindAppend") is True
        return cls(
            version=version,
            changes_protocol=any(isinstance(a, TableProtocol) for a in actions),
            changes_metadata=any(isinstance(a, MetaData) for a in actions),
            added={a.path: a.partition_values for a in adds if a.data_change},
            removed={a.path: a.partition_values for a in removes},
            is_blind_append=says_blind and not removes,
            app_ids=frozenset(a.app_id for a in actions if isinstance(a, Txn)),
            domains=frozenset(a.domain for a in actions if isinstance(a, DomainMetadata)),
        )


def table_isolation(configured: str | None) -> IsolationLevel:
    """The level a table's property asks for; the strictest for what nobody knows."""
    if configured == IsolationLevel.WRITE_SERIALIZABLE:
        return IsolationLevel.WRITE_SERIALIZABLE
    return IsolationLevel.SERIALIZABLE


def isolation_to_use(actions: Sequence[Action], table_isolation: IsolationLevel) -> IsolationLevel:
    """The level a commit needs: the table's, or snapshot isolation if no data changes.

    A commit without any file may come from an operation that looked for rows and found none;
    where the table promises only write serializability, such a commit keeps the table's level.
    """
    if not all(map(_rearranges, actions)):
        return table_isolation
    has_files = any(isinstance(action, AddFile | RemoveFile | CdcFile) for action in actions)
    if has_files or table_isolation is IsolationLevel.SERIALIZABLE:
        return IsolationLevel.SNAPSHOT_ISOLATION
    return table_isolation


def find_conflict(own: Intent, winner: WinningCommit) -> Conflict | None:
    """Why `own` cannot follow `winner`, or None if it can.

    The order of the checks is that of the reference: what changes the meaning of the table first,
    then files. One winner at a time; the first conflict decides.
    """
    return _table_conflict(own, winner) or _file_conflict(own, winner)


def find_first_conflict(own: Intent, winners: Iterable[WinningCommit]) -> Conflict | None:
    """The conflict with the earliest of the winners, which are given in version order."""
    return next((found for winner in winners if (found := find_conflict(own, winner))), None)


def _table_conflict(own: Intent, winner: WinningCommit) -> Conflict | None:
    if winner.changes_protocol:
        return _lost(ConflictReason.PROTOCOL_CHANGED, winner, "changed the table's protocol")
    if winner.changes_metadata:
        return _lost(ConflictReason.METADATA_CHANGED, winner, "changed the table's metadata")
    if winner.domains and (domains := (own.domains & winner.domains) - {ROW_TRACKING_DOMAIN}):
        what = f"changed the domain {min(domains)!r}, which this commit changes too"
        return _lost(ConflictReason.CONCURRENT_DOMAIN_METADATA, winner, what)
    if winner.app_ids and (apps := winner.app_ids & (own.app_ids | own.read.app_ids)):
        what = f"moved the application {min(apps)!r} on, on which this commit depends"
        return _lost(ConflictReason.CONCURRENT_TRANSACTION, winner, what)
    return None


def _file_conflict(own: Intent, winner: WinningCommit) -> Conflict | None:
    if own.read.is_empty and not winner.removed:
        return None
    if _appends_matter(own, winner):
        for path, values in winner.added.items():
            if own.read.covers(values):
                what = f"added {path!r}, which this commit should have read"
                return _lost(ConflictReason.CONCURRENT_APPEND, winner, what)
    return _delete_conflict(own, winner)


def _delete_conflict(own: Intent, winner: WinningCommit) -> Conflict | None:
    for path, values in winner.removed.items():
        if path in own.read.files or own.read.covers(values):
            what = f"removed {path!r}, which this commit read"
            return _lost(ConflictReason.CONCURRENT_DELETE_READ, winner, what)
    for path in winner.removed:
        if path in own.removed_paths:
            what = f"removed {path!r}, which this commit removes too"
            return _lost(ConflictReason.CONCURRENT_DELETE_DELETE, winner, what)
        if path in own.added_paths:
            what = f"removed {path!r}, which this commit would bring back"
            return _lost(ConflictReason.CONCURRENT_DELETE_READ, winner, what)
    return None


def _appends_matter(own: Intent, winner: WinningCommit) -> bool:
    match own.isolation:
        case IsolationLevel.SERIALIZABLE:
            return True
        case IsolationLevel.WRITE_SERIALIZABLE:
            return own.changes_metadata or not winner.is_blind_append
        case IsolationLevel.SNAPSHOT_ISOLATION:
            return False


def _rearranges(action: Action) -> bool:
    match action:
        case AddFile() | RemoveFile() | CdcFile():
            return not action.data_change
        case DomainMetadata():
            return action.domain == ROW_TRACKING_DOMAIN
        case CommitInfo():
            return True
        case _:
            return False


def _matches(predicate: PartitionPredicate, values: Mapping[str, str | None]) -> bool:
    """Empty text is the other spelling of null (DL-ADD-08)."""
    return all((values.get(name) or None) == (value or None) for name, value in predicate)


def _lost(reason: ConflictReason, winner: WinningCommit, what: str) -> Conflict:
    message = f"version {winner.version} {what}"
    return Conflict(reason=reason, winning_version=winner.version, message=message)
