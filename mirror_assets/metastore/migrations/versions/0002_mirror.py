"""What the mirror has done: its status per version, its events, its breakers.

Versions committed before this revision were never published by us, except those that an import
found in the log.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the mirror's tables, and owe it every version that only SQL knows."""
    op.create_table(
        "dl_mirror_status",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("artifact", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason_code", sa.Text, nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_attempt_at_ms", sa.BigInteger, nullable=True),
        sa.Column("sha256", sa.Text, nullable=True),
        sa.Column("resolved_by", sa.Text, nullable=True),
        sa.Column("published_at_ms", sa.BigInteger, nullable=True),
        sa.Column("lag_ms", sa.BigInteger, nullable=True),
        sa.Column("last_error", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("table_id", "version", "artifact", name="pk_dl_mirror_status"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dl_mirror_tables",
        sa.Column("table_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("lease_owner", sa.Text, nullable=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("lease_until_ms", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("next_attempt_at_ms", sa.BigInteger, nullable=False),
        sa.Column("checkpoint_version", sa.BigInteger, nullable=False),
        sa.Column("checkpointed_at_ms", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("table_id", name="pk_dl_mirror_tables"),
    )
    op.create_table(
        "dl_mirror_events",
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("table_id", sa.Integer, nullable=True),
        sa.Column("version", sa.BigInteger, nullable=True),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("event_id", name="pk_dl_mirror_events"),
    )
    op.create_table(
        "dl_breakers",
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("opened_at_ms", sa.BigInteger, nullable=True),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("store", name="pk_dl_breakers"),
    )
    if op.get_bind().dialect.name != "duckdb":
        unmirrored = sa.text("status != 'SUCCESS'")
        op.create_index(
            "ix_dl_mirror_status_unmirrored",
            "dl_mirror_status",
            ["table_id", "version"],
            postgresql_where=unmirrored,
            sqlite_where=unmirrored,
        )
    op.execute(
        "insert into dl_mirror_status (table_id, version, artifact, status, attempts, sha256)"
        " select table_id, version, 'commit',"
        " case when source = 'import' then 'SUCCESS' else 'PENDING' end, 0, sha256"
        " from dl_table_versions"
    )
    op.execute(
        "insert into dl_mirror_tables (table_id, state, fence, lease_until_ms, failures,"
        " next_attempt_at_ms, checkpoint_version)"
        " select table_id, 'OK', 0, 0, 0, 0, -1 from dl_tables"
    )
    op.execute(
        "update dl_tables set mirrored_version = coalesce((select max(v.version)"
        " from dl_table_versions v"
        " where v.table_id = dl_tables.table_id and v.source = 'import'), -1)"
    )
