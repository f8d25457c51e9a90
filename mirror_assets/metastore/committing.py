"""One commit to one table, inside the transaction that holds its head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, or_, select

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    MetaData,
    TableProtocol,
    first_of,
)
from mirror_assets.delta.commit_file import SERIALIZER_VERSION, canonical_json
from mirror_assets.delta.conflicts import (
    ISOLATION_PROPERTY,
    ROW_TRACKING_DOMAIN,
    Intent,
    ReadSet,
    WinningCommit,
    find_first_conflict,
    table_isolation,
)
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.path_rules import is_storable
from mirror_assets.delta.validation import validate_commit
from mirror_assets.errors import MirrorAssetsError, VersionNotFoundError
from mirror_assets.findings import Finding
from mirror_assets.metastore import tables
from mirror_assets.metastore.commit_plan import (
    CommitPlan,
    Provenance,
    RowIds,
    assign_row_ids,
    high_water_mark,
    note_ict_enablement,
    plan_commit,
    stamps_in_commit,
)
from mirror_assets.metastore.commit_reader import read_commits
from mirror_assets.metastore.cuts import owe_cut
from mirror_assets.metastore.effects import Effects, Glance, find_effects
from mirror_assets.metastore.heads import InForce
from mirror_assets.metastore.log_reader import TableRecord
from mirror_assets.metastore.outcomes import (
    CommitRequest,
    Committed,
    Conflict,
)
from mirror_assets.metastore.rows import ACTION_TABLES
from mirror_assets.metastore.statements import Statements

T = TypeVar("T")


class ConflictFoundError(Exception):
    """Rolls the transaction back; the writer returns the conflict as its outcome."""

    def __init__(self, conflict: Conflict) -> None:
        self.conflict = conflict
        super().__init__(conflict.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing:
    """What the commits of one transaction share."""

    statements: Statements
    connection: Connection
    in_force: InForce
    now_ms: int
    commit_id: str
    group_id: str | None
    engine_info: str
    #: whether nothing else happens in the transaction, so that COMMIT may go along
    is_all: bool = False
    #: what was looked up with the head
    glance: Glance | None = None

    def commit(self, head: TableRecord, request: CommitRequest) -> Committed:
        """Write the table's next version; raise ConflictFoundError if another commit won."""
        version = head.head_version + 1
        try:
            return self._commit(head, request, version)
        except MirrorAssetsError as exc:
            raise exc.at(table=head.name, version=version) from exc.__cause__

    def _commit(self, head: TableRecord, request: CommitRequest, version: int) -> Committed:
        protocol, metadata = self._before(head)
        findings = validate_commit(
            request.actions, version=version, protocol=protocol, metadata=metadata
        )
        intent = _intent(request, metadata)
        self._refuse_conflict(head, request, intent)
        timestamp_ms = max(self.now_ms, head.head_timestamp_ms + 1)
        actions = self._complete(head, request.actions, timestamp_ms)
        effects = find_effects(self.statements, self.connection, head, actions, self.glance)
        provenance = Provenance(
            version=version,
            timestamp_ms=timestamp_ms,
            read_version=request.read_version,
            isolation=intent.isolation,
            is_blind_append=intent.is_blind_append,
            commit_id=self.commit_id,
            group_id=self.group_id,
            engine_info=self.engine_info,
        )
        stamped = _stamps(actions, protocol, metadata)
        plan = plan_commit(head.table_id, actions, provenance, stamp_in_commit=stamped)
        self._write(head, plan, provenance, effects)
        return self._committed(head, plan, provenance, [*findings, *effects.findings])

    def _before(self, head: TableRecord) -> tuple[TableProtocol | None, MetaData | None]:
        if head.head_version < 0:
            return None, None
        return self.in_force.at_head(self.connection, head)

    def _refuse_conflict(self, head: TableRecord, request: CommitRequest, intent: Intent) -> None:
        read_version = request.read_version
        if read_version is None or read_version == head.head_version:
            return
        if read_version > head.head_version or read_version < head.floor_version:
            message = f"the read version {read_version} is not one of the table's"
            raise VersionNotFoundError(message)
        winners = _winners(self.connection, head, read_version, intent)
        if (found := find_first_conflict(intent, winners)) is not None:
            raise ConflictFoundError(
                Conflict(
                    table=head.name,
                    winning_version=found.winning_version,
                    reason=found.reason,
                    message=found.message,
                )
            )

    def _complete(
        self, head: TableRecord, actions: Sequence[Action], timestamp_ms: int
    ) -> Sequence[Action]:
        """Add what only the holder of the head can know: row ids, the start of timestamps."""
        protocol, metadata = self._before(head)
        version = head.head_version + 1
        newest = _newest(TableProtocol, actions, protocol)
        if newest is not None and "rowTracking" in effective_features(newest):
            mark, known = self._row_id_mark(head), self._known_row_ids(head, actions)
            actions = assign_row_ids(actions, version, mark, known)
        if protocol is None or metadata is None or _stamps((), protocol, metadata):
            return actions
        if not _stamps(actions, protocol, metadata):
            return actions
        return [
            note_ict_enablement(action, version, timestamp_ms)
            if isinstance(action, MetaData)
            else action
            for action in actions
        ]

    def _row_id_mark(self, head: TableRecord) -> int:
        domains = tables.dl_domain_metadata
        query = (
            select(domains.c.configuration)
            .where(
                domains.c.table_id == head.table_id,
                domains.c.domain == ROW_TRACKING_DOMAIN,
                domains.c.version >= head.floor_version,
            )
            .order_by(domains.c.version.desc(), domains.c.ordinal.desc())
            .limit(1)
        )
        found = self.connection.execute(query).scalar()
        return -1 if found is None else high_water_mark(found)

    def _known_row_ids(self, head: TableRecord, actions: Sequence[Action]) -> dict[str, RowIds]:
        """The row ids of live files that are added again, by path."""
        wanted = [a.path for a in actions if isinstance(a, AddFile) and a.base_row_id is None]
        if not wanted:
            return {}
        files, dialect = tables.dl_add_files, self.statements.dialect
        parameters = {"table_id": head.table_id, "texts": dialect.texts(wanted)}
        found = self.statements.open_rows(files.c.removed_version).run(self.connection, parameters)
        if not found:
            return {}
        place = dialect.pairs([(version, ordinal) for version, ordinal, *_ in found])
        query = select(files.c.path, files.c.base_row_id, files.c.default_row_commit_version).where(
            files.c.table_id == head.table_id,
            files.c.version == place.c.first,
            files.c.ordinal == place.c.second,
            files.c.base_row_id.is_not(None),
        )
        return {path: (first, version) for path, first, version in self.connection.execute(query)}

    def _write(
        self, head: TableRecord, plan: CommitPlan, provenance: Provenance, effects: Effects
    ) -> None:
        effects.write(self.statements, self.connection, head, provenance.version)
        if provenance.group_id is not None:
            owe_cut(self.connection, head.table_id, provenance.version)
        self.statements.write(
            self.connection,
            plan.rows,
            self._version_row(head, plan, provenance, effects),
            self._new_head(head, plan, provenance, effects),
            #: announcements make commits wait for each other: a mirror with work to do gets none
            announce=head.mirrored_version == head.head_version,
            is_all=self.is_all,
        )

    def _version_row(
        self, head: TableRecord, plan: CommitPlan, provenance: Provenance, effects: Effects
    ) -> dict[str, Any]:
        counts = {count: len(plan.rows.get(t, ())) for t, count in ACTION_TABLES.items()}
        return {
            "table_id": head.table_id,
            "version": provenance.version,
            "commit_id": provenance.commit_id,
            "group_id": provenance.group_id,
            "source": "commit",
            "committed_at_ms": self.now_ms,
            "timestamp_ms": provenance.timestamp_ms,
            "in_commit_timestamp_ms": plan.in_commit_timestamp_ms,
            "operation": _text(plan.info.get("operation")),
            "read_version": provenance.read_version,
            "is_blind_append": provenance.is_blind_append,
            "isolation_level": provenance.isolation.value,
            "commit_info": canonical_json(plan.info.fields).decode(),
            "commit_info_ordinal": 0,
            "num_actions": plan.num_actions,
            **counts,
            "num_files": effects.num_files,
            "size_bytes": effects.size_bytes,
            "sha256": plan.sha256,
            "byte_length": plan.byte_length,
            "serializer_version": SERIALIZER_VERSION,
            "final_newline": True,
        }

    def _new_head(
        self, head: TableRecord, plan: CommitPlan, provenance: Provenance, effects: Effects
    ) -> dict[str, int]:
        version, rows = provenance.version, plan.rows
        new_protocol = tables.dl_protocol_updates in rows
        new_metadata = tables.dl_metadata_updates in rows
        return {
            "head_version": version,
            "head_timestamp_ms": provenance.timestamp_ms,
            "protocol_version": version if new_protocol else head.protocol_version,
            "metadata_version": version if new_metadata else head.metadata_version,
            "num_files": effects.num_files,
            "size_bytes": effects.size_bytes,
            "num_removes": head.num_removes + len(rows.get(tables.dl_remove_files, ())),
        }

    def _committed(
        self,
        head: TableRecord,
        plan: CommitPlan,
        provenance: Provenance,
        findings: list[Finding],
    ) -> Committed:
        return Committed(
            table=head.name,
            version=provenance.version,
            commit_id=self.commit_id,
            timestamp_ms=provenance.timestamp_ms,
            sha256=plan.sha256,
            findings=findings,
        )


def _text(value: object) -> str | None:
    """A free-form member as a column can hold it; the commit's bytes have it as it is."""
    return value if isinstance(value, str) and is_storable(value) else None


def _intent(request: CommitRequest, metadata: MetaData | None) -> Intent:
    info = first_of(CommitInfo, request.actions)
    reads = request.reads
    if reads.is_empty and info is not None and info.get("isBlindAppend") is False:
        reads = ReadSet(whole_table=True, app_ids=reads.app_ids)
    configured = metadata.configuration.get(ISOLATION_PROPERTY) if metadata else None
    level = request.isolation or table_isolation(configured)
    return Intent.of(request.actions, read=reads, table_isolation=level)


def _winners(
    connection: Connection, head: TableRecord, read_version: int, own: Intent
) -> Iterator[WinningCommit]:
    """The commits since the read version that can matter; pure appends only to who read data."""
    versions = tables.dl_table_versions
    query = select(versions.c.version).where(
        versions.c.table_id == head.table_id, versions.c.version > read_version
    )
    if own.read.is_empty:
        counts = ("num_removes", "num_metadata", "num_protocol", "num_txns", "num_domains")
        query = query.where(or_(*(versions.c[count] > 0 for count in counts)))
    for version in connection.execute(query.order_by(versions.c.version)).scalars().all():
        for commit in read_commits(connection, head.table_id, version, version):
            yield WinningCommit.of(commit.version, commit.actions)


def _stamps(
    actions: Sequence[Action], protocol: TableProtocol | None, metadata: MetaData | None
) -> bool:
    newest_protocol = _newest(TableProtocol, actions, protocol)
    newest_metadata = _newest(MetaData, actions, metadata)
    if newest_protocol is None or newest_metadata is None:
        return False
    return stamps_in_commit(newest_protocol, newest_metadata)


def _newest(kind: type[T], actions: Sequence[Action], before: T | None) -> T | None:
    return first_of(kind, actions) or before
