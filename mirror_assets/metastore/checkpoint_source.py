"""The state of a table at a version, as checkpoints and version checksums need it.

Files are streamed as Arrow batches, in no order but mostly that of their commits; every query
names the version, so that commits made meanwhile change nothing, and several streams see one
picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import orjson
import pyarrow as pa
from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    case,
    cast,
    func,
    null,
    or_,
    select,
)

from mirror_assets.delta.actions import DomainMetadata, Txn
from mirror_assets.delta.checkpoint_columns import (
    ADD_COLUMNS,
    PACKED,
    RARE_COLUMNS,
    REMOVE_COLUMNS,
)
from mirror_assets.delta.checkpoint_content import CheckpointContent
from mirror_assets.delta.features import effective_features, unsupported_writer_features
from mirror_assets.delta.sidecar_plan import Key, Part, Weight
from mirror_assets.delta.table_properties import (
    guarded_version,
    tombstone_cutoff_ms,
    txn_cutoff_ms,
)
from mirror_assets.errors import UnsupportedTableError
from mirror_assets.metastore import tables
from mirror_assets.metastore.arrow_reader import ArrowReader
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import (
    LogReader,
    TableRecord,
    TableSummary,
    find_table,
    is_live,
)
from mirror_assets.metastore.rows import from_row

_ADDS = tables.dl_add_files
_REMOVES = tables.dl_remove_files
_MOST_LOST = 200_000
_FILLING_FEATURES = frozenset({"deletionVectors", "rowTracking"})


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """One table at one version; `now_ms` decides which tombstones have expired."""

    metastore: Metastore
    table: TableRecord
    summary: TableSummary
    now_ms: int

    @classmethod
    def open(cls, metastore: Metastore, table: str, version: int, *, now_ms: int) -> Self:
        """Look up what is in force. Raises TableNotFoundError or VersionNotFoundError."""
        with metastore.read() as connection:
            record = find_table(connection, table)
        return cls(metastore, record, LogReader(metastore).summary(table, version), now_ms)

    def require_allowed(self) -> None:
        """Raise UnsupportedTableError where only others may write checkpoints.

        That is a table with a feature we do not know (DL-PROT-11), then or now, and versions
        that `checkpointProtection` guards (DL-CP-17).
        """
        head = LogReader(self.metastore).summary(self.table.name, self.table.head_version)
        for protocol in (self.summary.protocol, head.protocol):
            if unsupported := unsupported_writer_features(protocol):
                message = f"no checkpoint: the table has the feature {min(unsupported)!r}"
                raise self._refused(message, "DL-PROT-11")
        guarded = guarded_version(head.protocol, head.metadata)
        if guarded is not None and self.version < guarded:
            message = f"no checkpoint: versions below {guarded} are protected"
            raise self._refused(message, "DL-CP-17")

    @property
    def version(self) -> int:
        """The version whose state this is."""
        return self.summary.version

    @property
    def tombstone_cutoff_ms(self) -> int:
        """Tombstones of a later deletion stand."""
        return tombstone_cutoff_ms(self.summary.metadata.configuration, self.now_ms)

    def adds(
        self, part: Part | None = None, reader: ArrowReader | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The live files, all or those of a part."""
        at_most = self.summary.num_files if part is None else part.files
        conditions = (self._live, *_between(_ADDS, part))
        return self._stream(reader, at_most, _ADDS, ADD_COLUMNS, *conditions)

    def removes(
        self, part: Part | None = None, reader: ArrowReader | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The unexpired tombstones, all or those of a part."""
        at_most = self.table.num_removes if part is None else part.files
        conditions = (self._standing, *_between(_REMOVES, part))
        return self._stream(reader, at_most, _REMOVES, REMOVE_COLUMNS, *conditions)

    @property
    def txns_expire(self) -> bool:
        """Whether transactions of applications leave the state by themselves."""
        return txn_cutoff_ms(self.summary.metadata.configuration, self.now_ms) is not None

    def txns(self) -> list[Txn]:
        """How far each application has come; expired ones left out (DL-TXN-03)."""
        cutoff = txn_cutoff_ms(self.summary.metadata.configuration, self.now_ms)
        found = (a for a in self._newest(tables.dl_txn_actions, "app_id") if isinstance(a, Txn))
        return [
            txn
            for txn in found
            if cutoff is None or txn.last_updated is None or txn.last_updated > cutoff
        ]

    def domains(self) -> list[DomainMetadata]:
        """The domains in force."""
        rows = self._newest(tables.dl_domain_metadata, "domain")
        return [a for a in rows if isinstance(a, DomainMetadata) and not a.removed]

    def expected(self) -> CheckpointContent:
        """What a checkpoint of this state must hold, counted by SQL itself."""
        with self.metastore.read() as connection:
            query = select(func.count()).select_from(_REMOVES).where(self._standing)
            removes: int = connection.execute(query).scalar_one()
        return CheckpointContent(
            protocols=1,
            metadatas=1,
            txns=len(self.txns()),
            domains=len(self.domains()),
            adds=self.summary.num_files,
            removes=removes,
            size_bytes=self.summary.size_bytes,
        )

    def add_weights(self, after: int) -> list[Weight]:
        """How many live files each commit after a version added."""
        return self._weights(_ADDS, self._live, _ADDS.c.version > after)

    def remove_weights(self, first: int) -> list[Weight]:
        """How many standing tombstones each commit from a version on holds."""
        return self._weights(_REMOVES, self._standing, _REMOVES.c.version >= first)

    def lost_since(self, version: int) -> list[Key] | None:
        """The files that were live at an earlier version and are no longer, in order.

        None if they are so many that knowing them is worth nothing.
        """
        query = (
            select(_ADDS.c.version, _ADDS.c.ordinal)
            .where(
                _ADDS.c.table_id == self.table.table_id,
                _ADDS.c.removed_version.is_not(None),
                _ADDS.c.removed_version > version,
                _ADDS.c.removed_version <= self.version,
                _ADDS.c.version <= version,
            )
            .order_by(_ADDS.c.version, _ADDS.c.ordinal)
            .limit(_MOST_LOST + 1)
        )
        with self.metastore.read() as connection:
            lost: list[Key] = [(row[0], row[1]) for row in connection.execute(query)]
        return lost if len(lost) <= _MOST_LOST else None

    def version_facts(self) -> VersionFacts:
        """What the version's own row says."""
        versions = tables.dl_table_versions
        query = select(versions.c.in_commit_timestamp_ms, versions.c.commit_info).where(
            versions.c.table_id == self.table.table_id, versions.c.version == self.version
        )
        with self.metastore.read() as connection:
            row = connection.execute(query).one()
        info = {} if row.commit_info is None else orjson.loads(row.commit_info)
        txn_id = info.get("txnId")
        return VersionFacts(
            in_commit_timestamp_ms=row.in_commit_timestamp_ms,
            txn_id=txn_id if isinstance(txn_id, str) else None,
        )

    def _refused(self, message: str, rule: str) -> UnsupportedTableError:
        remedy = "checkpoint it with the engine that made the table"
        return UnsupportedTableError(
            message, table=self.table.name, version=self.version, rule=rule, remedy=remedy
        )

    @property
    def _live(self) -> ColumnElement[bool]:
        return is_live(_ADDS, self.table.table_id, self.version)

    @property
    def _standing(self) -> ColumnElement[bool]:
        unexpired = _REMOVES.c.deletion_timestamp > self.tombstone_cutoff_ms
        return and_(is_live(_REMOVES, self.table.table_id, self.version), unexpired)

    def _stream(
        self,
        reader: ArrowReader | None,
        at_most: int,
        table: Table,
        names: Iterable[str],
        *conditions: ColumnElement[bool],
    ) -> Iterator[pa.RecordBatch]:
        columns = self._columns(table, names)
        query: Select[Any] = select(*columns).where(*conditions)
        with ArrowReader(self.metastore) if reader is None else nullcontext(reader) as opened:
            yield from opened.stream(query, at_most=at_most)

    def _columns(self, table: Table, names: Iterable[str]) -> list[ColumnElement[Any]]:
        """From PostgreSQL even null costs as much as a number: rare columns come as one.

        Not so in tables with a feature that fills them.
        """
        columns: list[ColumnElement[Any]] = [table.c[name] for name in names]
        features = effective_features(self.summary.protocol)
        if self.metastore.dialect.name != "postgresql" or features & _FILLING_FEATURES:
            return columns
        rare = [table.c[name] for name in RARE_COLUMNS]
        packed = case(
            (and_(*(column.is_(None) for column in rare)), null()),
            else_=cast(func.json_build_array(*rare), Text),
        )
        return [*(table.c[n] for n in names if n not in RARE_COLUMNS), packed.label(PACKED)]

    def _weights(self, table: Table, *conditions: ColumnElement[bool]) -> list[Weight]:
        key, ordinal = table.c.version, table.c.ordinal
        query = (
            select(key, func.count(), func.min(ordinal), func.max(ordinal))
            .where(*conditions)
            .group_by(key)
            .order_by(key)
        )
        with self.metastore.read() as connection:
            return [Weight(*row) for row in connection.execute(query)]

    def _newest(self, table: Table, key: str) -> list[Any]:
        """The newest action of each key; nothing below the floor tells of the state."""
        newest = func.row_number().over(
            partition_by=table.c[key], order_by=(table.c.version.desc(), table.c.ordinal.desc())
        )
        known = select(table, newest.label("age")).where(
            table.c.table_id == self.table.table_id,
            table.c.version.between(self.table.floor_version, self.version),
        )
        rows = known.subquery()
        query = select(rows).where(rows.c.age == 1).order_by(rows.c[key])
        with self.metastore.read() as connection:
            return [from_row(table, row) for row in connection.execute(query).mappings()]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What a version checksum tells beside the state."""

    in_commit_timestamp_ms: int | None
    txn_id: str | None


def _between(table: Table, part: Part | None) -> tuple[ColumnElement[bool], ...]:
    """By version first, which the primary key finds; a large commit is cut by ordinal."""
    if part is None:
        return ()
    version, ordinal = table.c.version, table.c.ordinal
    (low, low_ordinal), (high, high_ordinal) = part.within.first, part.within.last
    return (
        version.between(low, high),
        or_(version > low, ordinal >= low_ordinal),
        or_(version < high, ordinal <= high_ordinal),
    )
