"""The metastore's tables, as SQLAlchemy definitions.

Every action keeps its place in its commit (`ordinal`), its maps as ordered JSON text, what the
protocol does not name in `extra`, and in `raw` the line it was imported from where the canonical
form differs. A negative ordinal marks what a checkpoint told of the state at the floor version of
an import: it is state, and no part of a commit.

A file is live at version v where `version <= v` and `removed_version` is null or greater than v; a
tombstone likewise with `superseded_version`. Times are epoch milliseconds. Where rows lie in the
order of their key, SQLite keeps no second copy of it (`sqlite_with_rowid`); not so the files', or
its planner would search them by that key alone and never by path.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _big(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _place() -> tuple[Column[int], Column[int], Column[int]]:
    """Which action this is: table, version, and the place in the commit."""
    return (
        Column("table_id", Integer, primary_key=True, autoincrement=False),
        Column("version", BigInteger, primary_key=True, autoincrement=False),
        Column("ordinal", Integer, primary_key=True, autoincrement=False),
    )


def _remainder() -> tuple[Column[str], Column[str]]:
    """What no column holds."""
    return _text("extra", nullable=True), _text("raw", nullable=True)


def _index(name: str, *columns: Column[Any], where: ColumnElement[bool] | None = None) -> None:
    """An index where it helps: DuckDB scans columns, and knows no partial index."""
    index = Index(name, *columns, postgresql_where=where, sqlite_where=where)
    index.ddl_if(callable_=lambda *_, dialect, **__: dialect.name != "duckdb")


def _deletion_vector() -> tuple[Column[str] | Column[int], ...]:
    return (
        #: empty without a vector, so that (path, dv_id) compares without a thought about null
        _text("dv_id"),
        _text("dv_storage_type", nullable=True),
        _text("dv_path_or_inline_dv", nullable=True),
        Column("dv_offset", Integer, nullable=True),
        Column("dv_size_in_bytes", Integer, nullable=True),
        _big("dv_cardinality", nullable=True),
    )


dl_tables: Final = Table(
    "dl_tables",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    _text("name"),
    _text("location"),
    _text("location_key"),
    #: where relative data paths of an imported table point to, if not to `location`
    _text("data_location", nullable=True),
    _text("state"),
    #: -1 before the first commit
    _big("head_version"),
    #: oldest version with a commit in SQL, and oldest whose state is known
    _big("first_version"),
    _big("floor_version"),
    #: commit timestamp of the head, never decreasing
    _big("head_timestamp_ms"),
    #: the versions whose protocol and metaData are in force at the head
    _big("protocol_version"),
    _big("metadata_version"),
    _big("num_files"),
    _big("size_bytes"),
    #: remove actions ever committed: without any, no tombstone can be superseded
    _big("num_removes"),
    _big("created_at_ms"),
    #: newest version below which every commit file is published
    Column("mirrored_version", BigInteger, nullable=False, server_default="-1"),
    UniqueConstraint("name"),
    UniqueConstraint("location_key"),
)

dl_table_versions: Final = Table(
    "dl_table_versions",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    _text("commit_id", nullable=True),
    _text("group_id", nullable=True),
    _text("source"),
    _big("committed_at_ms"),
    _big("timestamp_ms"),
    _big("in_commit_timestamp_ms", nullable=True),
    _text("operation", nullable=True),
    _big("read_version", nullable=True),
    Column("is_blind_append", Boolean, nullable=True),
    _text("isolation_level", nullable=True),
    _text("commit_info", nullable=True),
    Column("commit_info_ordinal", Integer, nullable=True),
    _text("commit_info_raw", nullable=True),
    _big("num_actions"),
    _big("num_adds"),
    _big("num_removes"),
    _big("num_metadata"),
    _big("num_protocol"),
    _big("num_txns"),
    _big("num_domains"),
    _big("num_cdc"),
    _big("num_unknown"),
    #: totals of the state at this version; null where the state is not known
    _big("num_files", nullable=True),
    _big("size_bytes", nullable=True),
    _text("sha256"),
    _big("byte_length"),
    Column("serializer_version", Integer, nullable=False),
    Column("final_newline", Boolean, nullable=False),
    #: the commit file itself, where its lines alone cannot give it back
    Column("raw_file", LargeBinary, nullable=True),
    UniqueConstraint("table_id", "commit_id"),
    sqlite_with_rowid=False,
)

_index(
    "ix_dl_table_versions_group",
    dl_table_versions.c.group_id,
    where=dl_table_versions.c.group_id.is_not(None),
)

dl_add_files: Final = Table(
    "dl_add_files",
    metadata,
    *_place(),
    _text("path"),
    _text("partition_values"),
    _big("size"),
    _big("modification_time"),
    Column("data_change", Boolean, nullable=False),
    _text("stats", nullable=True),
    _text("tags", nullable=True),
    *_deletion_vector(),
    _big("base_row_id", nullable=True),
    _big("default_row_commit_version", nullable=True),
    _text("clustering_provider", nullable=True),
    *_remainder(),
    #: the version that removed or replaced it; not above `version` for history below the floor
    _big("removed_version", nullable=True),
)
dl_remove_files: Final = Table(
    "dl_remove_files",
    metadata,
    *_place(),
    _text("path"),
    _big("deletion_timestamp", nullable=True),
    Column("data_change", Boolean, nullable=False),
    Column("extended_file_metadata", Boolean, nullable=True),
    _text("partition_values", nullable=True),
    _big("size", nullable=True),
    _text("tags", nullable=True),
    *_deletion_vector(),
    _big("base_row_id", nullable=True),
    _big("default_row_commit_version", nullable=True),
    _text("stats", nullable=True),
    *_remainder(),
    #: the version that added the file again or removed it once more
    _big("superseded_version", nullable=True),
)

_LIVE = dl_add_files.c.removed_version.is_(None)
_STANDING = dl_remove_files.c.superseded_version.is_(None)
_index("ix_dl_add_files_live", dl_add_files.c.table_id, dl_add_files.c.path, where=_LIVE)
_index(
    "ix_dl_add_files_removed", dl_add_files.c.table_id, dl_add_files.c.removed_version, where=~_LIVE
)
_index(
    "ix_dl_remove_files_standing",
    dl_remove_files.c.table_id,
    dl_remove_files.c.path,
    where=_STANDING,
)

dl_metadata_updates: Final = Table(
    "dl_metadata_updates",
    metadata,
    *_place(),
    _text("id"),
    _text("name", nullable=True),
    _text("description", nullable=True),
    _text("format_provider"),
    _text("format_options"),
    _text("schema_string"),
    _text("partition_columns"),
    _text("configuration"),
    _big("created_time", nullable=True),
    *_remainder(),
    sqlite_with_rowid=False,
)
dl_protocol_updates: Final = Table(
    "dl_protocol_updates",
    metadata,
    *_place(),
    Column("min_reader_version", Integer, nullable=False),
    Column("min_writer_version", Integer, nullable=False),
    _text("reader_features", nullable=True),
    _text("writer_features", nullable=True),
    *_remainder(),
    sqlite_with_rowid=False,
)
dl_txn_actions: Final = Table(
    "dl_txn_actions",
    metadata,
    *_place(),
    _text("app_id"),
    _big("app_version"),
    _big("last_updated", nullable=True),
    *_remainder(),
    sqlite_with_rowid=False,
)
_index(
    "ix_dl_txn_actions_app_id",
    dl_txn_actions.c.table_id,
    dl_txn_actions.c.app_id,
    dl_txn_actions.c.version,
)
dl_domain_metadata: Final = Table(
    "dl_domain_metadata",
    metadata,
    *_place(),
    _text("domain"),
    _text("configuration"),
    Column("removed", Boolean, nullable=False),
    *_remainder(),
    sqlite_with_rowid=False,
)
_index(
    "ix_dl_domain_metadata_domain",
    dl_domain_metadata.c.table_id,
    dl_domain_metadata.c.domain,
    dl_domain_metadata.c.version,
)
dl_cdc_files: Final = Table(
    "dl_cdc_files",
    metadata,
    *_place(),
    _text("path"),
    _text("partition_values"),
    _big("size"),
    _text("tags", nullable=True),
    Column("data_change", Boolean, nullable=False),
    *_remainder(),
    sqlite_with_rowid=False,
)
dl_unknown_actions: Final = Table(
    "dl_unknown_actions",
    metadata,
    *_place(),
    #: the whole line as ordered JSON text
    _text("body"),
    _text("raw", nullable=True),
    sqlite_with_rowid=False,
)

dl_settings: Final = Table(
    "dl_settings",
    metadata,
    #: empty for all tables
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _text("value"),
    _big("revision"),
    _big("updated_at_ms"),
)

dl_mirror_status: Final = Table(
    "dl_mirror_status",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("artifact", Text, primary_key=True),
    _text("status"),
    _text("reason_code", nullable=True),
    Column("attempts", Integer, nullable=False, server_default="0"),
    _big("next_attempt_at_ms", nullable=True),
    _text("sha256", nullable=True),
    _text("resolved_by", nullable=True),
    _big("published_at_ms", nullable=True),
    _big("lag_ms", nullable=True),
    _text("last_error", nullable=True),
    sqlite_with_rowid=False,
)
_UNMIRRORED = dl_mirror_status.c.status != "SUCCESS"
_index(
    "ix_dl_mirror_status_unmirrored",
    dl_mirror_status.c.table_id,
    dl_mirror_status.c.version,
    where=_UNMIRRORED,
)
dl_mirror_tables: Final = Table(
    "dl_mirror_tables",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    #: OK, or the named state in which the mirror stopped
    _text("state"),
    _text("reason", nullable=True),
    #: who publishes it now, by a token that grows with every claim
    _text("lease_owner", nullable=True),
    _big("fence"),
    _big("lease_until_ms"),
    Column("failures", Integer, nullable=False),
    _big("next_attempt_at_ms"),
    #: newest verified checkpoint in the log
    _big("checkpoint_version"),
    _big("checkpointed_at_ms", nullable=True),
)
dl_mirror_events: Final = Table(
    "dl_mirror_events",
    metadata,
    Column("event_id", Text, primary_key=True),
    _big("at_ms"),
    Column("table_id", Integer, nullable=True),
    _big("version", nullable=True),
    _text("event"),
    _text("detail", nullable=True),
)
dl_breakers: Final = Table(
    "dl_breakers",
    metadata,
    Column("store", Text, primary_key=True),
    _text("state"),
    Column("failures", Integer, nullable=False),
    _big("opened_at_ms", nullable=True),
    _big("updated_at_ms"),
)
