"""Alembic's entry: runs the revisions on the connection that `migrate.upgrade` hands over."""

from __future__ import annotations

from alembic import context
from alembic.ddl.impl import DefaultImpl

from mirror_assets.metastore.tables import metadata


class DuckDbImpl(DefaultImpl):
    """DuckDB needs nothing of its own."""

    __dialect__ = "duckdb"


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
context.run_migrations()
