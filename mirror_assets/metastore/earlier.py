"""What an earlier try of a transaction has committed: the other half of idempotence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from mirror_assets.delta.actions import Txn
from mirror_assets.delta.conflicts import ConflictReason
from mirror_assets.delta.path_rules import is_storable
from mirror_assets.metastore import tables
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.outcomes import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    Conflict,
    Outcome,
)


def found_earlier(
    connection: Connection,
    heads: Mapping[str, TableRecord],
    requests: Sequence[CommitRequest],
    commit_id: str | None,
) -> list[Outcome]:
    """What an earlier try of the same transaction has committed; nothing if there was none.

    One participant's txn(appId, version) speaks for all: they were committed together.
    """
    if commit_id is not None and (found := _by_commit_id(connection, heads, commit_id)):
        return [_already(r.table, found.get(r.table), "commit_id") for r in requests]
    for request in requests:
        for txn in (a for a in request.actions if isinstance(a, Txn) and is_storable(a.app_id)):
            at = _by_txn(connection, heads[request.table], txn)
            if at is not None:
                return _all_of(connection, heads, requests, request.table, at)
    return []


def find_committed(connection: Connection, table: str, commit_id: str) -> Committed | None:
    """What an earlier try has committed to a table, read back; None if there was none."""
    versions, names = tables.dl_table_versions, tables.dl_tables
    query = (
        select(versions.c.version)
        .join(names, names.c.table_id == versions.c.table_id)
        .where(names.c.name == table, versions.c.commit_id == commit_id)
    )
    version = connection.execute(query).scalar()
    return None if version is None else read_committed(connection, table, version, commit_id)


def read_committed(connection: Connection, table: str, version: int, commit_id: str) -> Committed:
    """A commit of ours, read back."""
    versions = tables.dl_table_versions
    query = select(versions.c.timestamp_ms, versions.c.sha256).where(
        versions.c.table_id == find_table(connection, table).table_id,
        versions.c.version == version,
    )
    row = connection.execute(query).one()
    return Committed(
        table=table,
        version=version,
        commit_id=commit_id,
        timestamp_ms=row.timestamp_ms,
        sha256=row.sha256,
    )


def _by_commit_id(
    connection: Connection, heads: Mapping[str, TableRecord], commit_id: str
) -> dict[str, int]:
    versions = tables.dl_table_versions
    ids = {head.table_id: name for name, head in heads.items()}
    query = select(versions.c.table_id, versions.c.version).where(
        versions.c.table_id.in_(ids), versions.c.commit_id == commit_id
    )
    return {ids[table_id]: version for table_id, version in connection.execute(query)}


def _by_txn(connection: Connection, head: TableRecord, txn: Txn) -> int | None:
    actions = tables.dl_txn_actions
    newest = (
        select(actions.c.version, actions.c.app_version)
        .where(
            actions.c.table_id == head.table_id,
            actions.c.app_id == txn.app_id,
            actions.c.version >= head.floor_version,
        )
        .order_by(actions.c.version.desc(), actions.c.ordinal.desc())
        .limit(1)
    )
    found = connection.execute(newest).one_or_none()
    if found is None or found.app_version < txn.version:
        return None
    version: int = found.version
    return version


def _all_of(
    connection: Connection,
    heads: Mapping[str, TableRecord],
    requests: Sequence[CommitRequest],
    table: str,
    version: int,
) -> list[Outcome]:
    versions = tables.dl_table_versions
    query = select(versions.c.commit_id).where(
        versions.c.table_id == heads[table].table_id, versions.c.version == version
    )
    commit_id = connection.execute(query).scalar()
    found = {table: version}
    if commit_id is not None:
        found |= _by_commit_id(connection, heads, commit_id)
    return [_already(r.table, found.get(r.table), "txn") for r in requests]


def _already(table: str, version: int | None, reason: str) -> Outcome:
    if version is not None:
        return AlreadyCommitted(table=table, version=version, reason=reason)
    message = "another participant of this transaction was committed earlier, without this table"
    return Conflict(
        table=table,
        winning_version=-1,
        reason=ConflictReason.CONCURRENT_TRANSACTION,
        message=message,
    )
