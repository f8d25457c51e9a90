"""The metastore: tables, versions, actions, settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables; indexes only where the engine can use them."""
    op.create_table(
        "dl_tables",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("location_key", sa.Text, nullable=False),
        sa.Column("data_location", sa.Text, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("head_version", sa.BigInteger, nullable=False),
        sa.Column("first_version", sa.BigInteger, nullable=False),
        sa.Column("floor_version", sa.BigInteger, nullable=False),
        sa.Column("head_timestamp_ms", sa.BigInteger, nullable=False),
        sa.Column("protocol_version", sa.BigInteger, nullable=False),
        sa.Column("metadata_version", sa.BigInteger, nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_removes", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("mirrored_version", sa.BigInteger, nullable=False, server_default="-1"),
        sa.PrimaryKeyConstraint("table_id", name="pk_dl_tables"),
        sa.UniqueConstraint("location_key", name="uq_dl_tables_location_key"),
        sa.UniqueConstraint("name", name="uq_dl_tables_name"),
    )
    op.create_table(
        "dl_table_versions",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=True),
        sa.Column("group_id", sa.Text, nullable=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("committed_at_ms", sa.BigInteger, nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
        sa.Column("in_commit_timestamp_ms", sa.BigInteger, nullable=True),
        sa.Column("operation", sa.Text, nullable=True),
        sa.Column("read_version", sa.BigInteger, nullable=True),
        sa.Column("is_blind_append", sa.Boolean, nullable=True),
        sa.Column("isolation_level", sa.Text, nullable=True),
        sa.Column("commit_info", sa.Text, nullable=True),
        sa.Column("commit_info_ordinal", sa.Integer, nullable=True),
        sa.Column("commit_info_raw", sa.Text, nullable=True),
        sa.Column("num_actions", sa.BigInteger, nullable=False),
        sa.Column("num_adds", sa.BigInteger, nullable=False),
        sa.Column("num_removes", sa.BigInteger, nullable=False),
        sa.Column("num_metadata", sa.BigInteger, nullable=False),
        sa.Column("num_protocol", sa.BigInteger, nullable=False),
        sa.Column("num_txns", sa.BigInteger, nullable=False),
        sa.Column("num_domains", sa.BigInteger, nullable=False),
        sa.Column("num_cdc", sa.BigInteger, nullable=False),
        sa.Column("num_unknown", sa.BigInteger, nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=True),
        sa.Column("size_bytes", sa.BigInteger, nullable=True),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("byte_length", sa.BigInteger, nullable=False),
        sa.Column("serializer_version", sa.Integer, nullable=False),
        sa.Column("final_newline", sa.Boolean, nullable=False),
        sa.Column("raw_file", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_table_versions"),
        sa.UniqueConstraint(
            "table_id", "commit_id", name="uq_dl_table_versions_table_id_commit_id"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_add_files",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("partition_values", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("modification_time", sa.BigInteger, nullable=False),
        sa.Column("data_change", sa.Boolean, nullable=False),
        sa.Column("stats", sa.Text, nullable=True),
        sa.Column("tags", sa.Text, nullable=True),
        sa.Column("dv_id", sa.Text, nullable=False),
        sa.Column("dv_storage_type", sa.Text, nullable=True),
        sa.Column("dv_path_or_inline_dv", sa.Text, nullable=True),
        sa.Column("dv_offset", sa.Integer, nullable=True),
        sa.Column("dv_size_in_bytes", sa.Integer, nullable=True),
        sa.Column("dv_cardinality", sa.BigInteger, nullable=True),
        sa.Column("base_row_id", sa.BigInteger, nullable=True),
        sa.Column("default_row_commit_version", sa.BigInteger, nullable=True),
        sa.Column("clustering_provider", sa.Text, nullable=True),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.Column("removed_version", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_add_files"),
    )
    op.create_table(
        "dl_remove_files",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("deletion_timestamp", sa.BigInteger, nullable=True),
        sa.Column("data_change", sa.Boolean, nullable=False),
        sa.Column("extended_file_metadata", sa.Boolean, nullable=True),
        sa.Column("partition_values", sa.Text, nullable=True),
        sa.Column("size", sa.BigInteger, nullable=True),
        sa.Column("tags", sa.Text, nullable=True),
        sa.Column("dv_id", sa.Text, nullable=False),
        sa.Column("dv_storage_type", sa.Text, nullable=True),
        sa.Column("dv_path_or_inline_dv", sa.Text, nullable=True),
        sa.Column("dv_offset", sa.Integer, nullable=True),
        sa.Column("dv_size_in_bytes", sa.Integer, nullable=True),
        sa.Column("dv_cardinality", sa.BigInteger, nullable=True),
        sa.Column("base_row_id", sa.BigInteger, nullable=True),
        sa.Column("default_row_commit_version", sa.BigInteger, nullable=True),
        sa.Column("stats", sa.Text, nullable=True),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.Column("superseded_version", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_remove_files"),
    )
    op.create_table(
        "dl_metadata_updates",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("description", sa.Text, nullable=True),
        sa.Column("format_provider", sa.Text, nullable=False),
        sa.Column("format_options", sa.Text, nullable=False),
        sa.Column("schema_string", sa.Text, nullable=False),
        sa.Column("partition_columns", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("created_time", sa.BigInteger, nullable=True),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_metadata_updates"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_protocol_updates",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("min_reader_version", sa.Integer, nullable=False),
        sa.Column("min_writer_version", sa.Integer, nullable=False),
        sa.Column("reader_features", sa.Text, nullable=True),
        sa.Column("writer_features", sa.Text, nullable=True),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_protocol_updates"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_txn_actions",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("app_id", sa.Text, nullable=False),
        sa.Column("app_version", sa.BigInteger, nullable=False),
        sa.Column("last_updated", sa.BigInteger, nullable=True),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_txn_actions"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_domain_metadata",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("domain", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_domain_metadata"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_cdc_files",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("partition_values", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("tags", sa.Text, nullable=True),
        sa.Column("data_change", sa.Boolean, nullable=False),
        sa.Column("extra", sa.Text, nullable=True),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_cdc_files"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_unknown_actions",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("raw", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "ordinal", name="pk_dl_unknown_actions"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_settings",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name="pk_dl_settings"),
    )
    if op.get_bind().dialect.name == "duckdb":
        return
    _partial_index("ix_dl_add_files_live", "dl_add_files", "path", "removed_version IS NULL")
    _partial_index(
        "ix_dl_add_files_removed", "dl_add_files", "removed_version", "removed_version IS NOT NULL"
    )
    _partial_index(
        "ix_dl_remove_files_standing", "dl_remove_files", "path", "superseded_version IS NULL"
    )
    op.create_index("ix_dl_txn_actions_app_id", "dl_txn_actions", ["table_id", "app_id", "version"])
    op.create_index(
        "ix_dl_domain_metadata_domain", "dl_domain_metadata", ["table_id", "domain", "version"]
    )


def _partial_index(name: str, table: str, column: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, ["table_id", column], postgresql_where=where, sqlite_where=where)
