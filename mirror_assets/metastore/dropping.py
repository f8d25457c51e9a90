"""Forgetting a table: its rows go, its log and its data files stay."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from mirror_assets.metastore import tables
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.rows import ACTION_TABLES

_ROWS_OF_A_TABLE: Final = (
    *ACTION_TABLES,
    tables.dl_table_versions,
    tables.dl_mirror_status,
    tables.dl_mirror_tables,
    tables.dl_tables,
)


def drop_table(metastore: Metastore, name: str) -> TableRecord:
    """Delete everything that SQL knows of a table; return what it was."""
    with metastore.write() as connection:
        table = find_table(connection, name)
        forget(connection, table.table_id)
    return table


def forget(connection: Connection, table_id: int) -> None:
    """Delete everything about a table."""
    for table in _ROWS_OF_A_TABLE:
        connection.execute(table.delete().where(table.c.table_id == table_id))
