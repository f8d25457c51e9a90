"""Reading the metastore: commits as they were made, and the state of a table at any version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Table, and_, func, or_, select

from mirror_assets.delta.actions import (
    INT64_MAX,
    Action,
    AddFile,
    DomainMetadata,
    MetaData,
    RemoveFile,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.path_rules import is_storable
from mirror_assets.errors import TableNotFoundError, VersionNotFoundError
from mirror_assets.metastore import tables
from mirror_assets.metastore.commit_reader import Commit, read_commits
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.rows import from_row
from mirror_assets.metastore.statements import TOTALS

#: versions whose actions are fetched by one statement per table
_VERSIONS_PER_FETCH = 100
_ROWS_PER_FETCH = 10_000
#: the parts of a row of `Statements.summary`
_SUMMARY_COLUMNS = (
    tables.dl_tables.columns.keys(),
    TOTALS,
    tables.dl_protocol_updates.columns.keys(),
    tables.dl_metadata_updates.columns.keys(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A registered table, as its row in `dl_tables` says."""

    table_id: int
    name: str
    location: str
    location_key: str
    data_location: str | None
    state: str
    head_version: int
    first_version: int
    floor_version: int
    head_timestamp_ms: int
    protocol_version: int
    metadata_version: int
    num_files: int
    size_bytes: int
    num_removes: int
    created_at_ms: int
    mirrored_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """The state of a table at a version, but for its files."""

    table: str
    version: int
    timestamp_ms: int
    protocol: TableProtocol
    metadata: MetaData
    num_files: int
    size_bytes: int


class LogReader:
    """Everything that only looks."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def tables(self) -> list[TableRecord]:
        """The registered tables by name."""
        with self._metastore.read() as connection:
            query = select(tables.dl_tables).order_by(tables.dl_tables.c.name)
            return [TableRecord(**row) for row in connection.execute(query).mappings()]

    def table(self, name: str) -> TableRecord:
        """One registered table; TableNotFoundError without it."""
        with self._metastore.read() as connection:
            return find_table(connection, name)

    def summary(self, name: str, version: int | None = None) -> TableSummary:
        """Protocol, metadata and totals at a version, the head by default."""
        if not is_storable(name):
            raise _not_registered(name)
        at = None if version is None else max(-1, min(version, INT64_MAX))
        with self._metastore.read() as connection:
            asked = {"name": name, "at": at}
            rows = self._metastore.statements.summary.run(connection, asked, is_all=True)
        if not rows:
            raise _not_registered(name)
        return _summary(rows[-1], version)

    def version_at(self, name: str, timestamp_ms: int) -> int:
        """The newest version committed at or before a time."""
        versions = tables.dl_table_versions
        with self._metastore.read() as connection:
            table = find_table(connection, name)
            newest = select(func.max(versions.c.version)).where(
                versions.c.table_id == table.table_id,
                versions.c.version >= table.floor_version,
                versions.c.timestamp_ms <= max(-INT64_MAX, min(timestamp_ms, INT64_MAX)),
            )
            found: int | None = connection.execute(newest).scalar()
        if found is None:
            message = f"no version is as old as {timestamp_ms} ms after 1970"
            raise VersionNotFoundError(message, table=name)
        return found

    def live_files(self, name: str, version: int | None = None) -> Iterator[AddFile]:
        """The files of the table at a version, in the order of their commits; streamed."""
        rows = self._state_rows(name, version, tables.dl_add_files)
        return (action for action in rows if isinstance(action, AddFile))

    def tombstones(self, name: str, version: int | None = None) -> Iterator[RemoveFile]:
        """The newest remove of each file that is gone at a version; streamed."""
        rows = self._state_rows(name, version, tables.dl_remove_files)
        return (action for action in rows if isinstance(action, RemoveFile))

    def txns(self, name: str, version: int | None = None) -> dict[str, Txn]:
        """How far each application has come at a version."""
        rows = self._newest(name, version, tables.dl_txn_actions, "app_id")
        return {a.app_id: a for a in rows if isinstance(a, Txn)}

    def domains(self, name: str, version: int | None = None) -> dict[str, DomainMetadata]:
        """The domains in force at a version."""
        rows = self._newest(name, version, tables.dl_domain_metadata, "domain")
        newest = {a.domain: a for a in rows if isinstance(a, DomainMetadata)}
        return {domain: a for domain, a in newest.items() if not a.removed}

    def commits(
        self, name: str, first: int | None = None, last: int | None = None
    ) -> Iterator[Commit]:
        """The commits of a range of versions, oldest first; a batch of them at a time."""
        with self._metastore.read() as connection:
            table = find_table(connection, name)
            first = table.first_version if first is None else first
            last = table.head_version if last is None else min(last, table.head_version)
            for start in range(first, last + 1, _VERSIONS_PER_FETCH):
                end = min(start + _VERSIONS_PER_FETCH - 1, last)
                yield from read_commits(connection, table.table_id, start, end)

    def history(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """The newest versions first, each as its row in `dl_table_versions` with mirror status."""
        versions, status = tables.dl_table_versions, tables.dl_mirror_status
        columns = [c for c in versions.c if c.name not in ("raw_file", "commit_info_raw")]
        with self._metastore.read() as connection:
            table = find_table(connection, name)
            of_commit = and_(
                status.c.table_id == versions.c.table_id,
                status.c.version == versions.c.version,
                status.c.artifact == "commit",
            )
            query = (
                select(*columns, status.c.status.label("mirror_status"), status.c.lag_ms)
                .join(status, of_commit, isouter=True)
                .where(versions.c.table_id == table.table_id)
                .order_by(versions.c.version.desc())
                .limit(limit)
            )
            return [dict(row) for row in connection.execute(query).mappings()]

    def _state_rows(self, name: str, version: int | None, table: Table) -> Iterator[Action]:
        with self._metastore.read() as connection:
            record = find_table(connection, name)
            at = _known_version(record, version)
            query = select(table).where(is_live(table, record.table_id, at))
            query = query.order_by(table.c.version, table.c.ordinal)
            streamed = connection.execution_options(yield_per=_ROWS_PER_FETCH)
            with streamed.execute(query) as rows:  # closed also when the caller stops early
                for row in rows.mappings():
                    yield from_row(table, row)

    def _newest(self, name: str, version: int | None, table: Table, key: str) -> list[Action]:
        """The newest rows of each key, the last of them at the end; older ones are not read."""
        with self._metastore.read() as connection:
            record = find_table(connection, name)
            known = _known_until(table, record, _known_version(record, version))
            newest = (
                select(table.c[key], func.max(table.c.version).label("version"))
                .where(known)
                .group_by(table.c[key])
                .subquery("newest")
            )
            is_newest = and_(
                table.c[key] == newest.c[key], table.c.version == newest.c.version, known
            )
            query = select(table).join(newest, is_newest).order_by(table.c[key], table.c.ordinal)
            rows = connection.execute(query).mappings()
            return [from_row(table, row) for row in rows]


def find_table(connection: Connection, name: str) -> TableRecord:
    """The table's row; TableNotFoundError without it."""
    query = select(tables.dl_tables).where(tables.dl_tables.c.name == name)
    row = connection.execute(query).mappings().one_or_none() if is_storable(name) else None
    if row is None:
        raise _not_registered(name)
    return TableRecord(**row)


def is_live(table: Table, table_id: int, version: int) -> ColumnElement[bool]:
    """Which rows of adds or removes are part of the state at a version."""
    gone = table.c.removed_version if "removed_version" in table.c else table.c.superseded_version
    return and_(
        table.c.table_id == table_id,
        table.c.version <= version,
        or_(gone.is_(None), gone > version),
    )


def protocol_at(connection: Connection, table: TableRecord, version: int) -> TableProtocol:
    """The protocol in force."""
    return cast("TableProtocol", _in_force(connection, tables.dl_protocol_updates, table, version))


def metadata_at(connection: Connection, table: TableRecord, version: int) -> MetaData:
    """The metaData in force."""
    return cast("MetaData", _in_force(connection, tables.dl_metadata_updates, table, version))


def _summary(row: Sequence[Any], version: int | None) -> TableSummary:
    values = iter(row)
    record, totals, protocol, metadata = (
        dict(zip(names, islice(values, len(names)), strict=True)) for names in _SUMMARY_COLUMNS
    )
    table = TableRecord(**record)
    at = _known_version(table, version)
    return TableSummary(
        table=table.name,
        version=at,
        protocol=cast("TableProtocol", from_row(tables.dl_protocol_updates, protocol)),
        metadata=cast("MetaData", from_row(tables.dl_metadata_updates, metadata)),
        **totals,
    )


def _not_registered(name: str) -> TableNotFoundError:
    return TableNotFoundError("no table of this name is registered", table=name)


def _in_force(connection: Connection, actions: Table, table: TableRecord, version: int) -> Action:
    query = (
        select(actions)
        .where(_known_until(actions, table, version))
        .order_by(actions.c.version.desc(), actions.c.ordinal.desc())
        .limit(1)
    )
    return from_row(actions, connection.execute(query).mappings().one())


def _known_until(actions: Table, table: TableRecord, version: int) -> ColumnElement[bool]:
    """What tells of the state at a version: nothing below the floor does."""
    return and_(
        actions.c.table_id == table.table_id,
        actions.c.version.between(table.floor_version, version),
    )


def _known_version(table: TableRecord, version: int | None) -> int:
    at = table.head_version if version is None else version
    if not table.floor_version <= at <= table.head_version:
        known = f"{table.floor_version} to {table.head_version}"
        message = f"the state is known from version {known}"
        raise VersionNotFoundError(message, table=table.name, version=at)
    return at
