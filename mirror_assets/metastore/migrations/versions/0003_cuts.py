"""The versions that were committed together are found by their group, and owe a cut."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Index the groups, and owe the mirror a cut for each of their versions."""
    if op.get_bind().dialect.name != "duckdb":
        of_group = sa.text("group_id IS NOT NULL")
        op.create_index(
            "ix_dl_table_versions_group",
            "dl_table_versions",
            ["group_id"],
            postgresql_where=of_group,
            sqlite_where=of_group,
        )
    op.execute(
        "insert into dl_mirror_status (table_id, version, artifact, status, attempts)"
        " select table_id, version, 'cut', 'PENDING', 0"
        " from dl_table_versions where group_id is not null"
    )
