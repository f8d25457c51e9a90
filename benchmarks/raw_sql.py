"""The floor: the four statements that a commit of one file needs, in the bare driver.

It checks nothing, encodes nothing and believes the head it remembers: what our writer costs above
it is validation, bytes, digest, and the look at what the commit does to older rows.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Self
from uuid import uuid4

import psycopg
from sqlalchemy import Table, select

from mirror_assets.delta.actions import AddFile
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.rows import Row, to_row
from mirror_assets.metastore.tables import dl_add_files, dl_mirror_status, dl_table_versions

_MOVE = """
update dl_tables set head_version = %s, head_timestamp_ms = %s, num_files = %s, size_bytes = %s
where table_id = %s and head_version = %s
"""
_LOOK = "select head_version from dl_tables where table_id = %s"


class RawWriter:
    """Commits of one add to a table that has at least one version."""

    def __init__(
        self, connection: Any, mark: str, table: TableRecord, version: Row, status: Row
    ) -> None:
        self._connection = connection
        self._table_id = table.table_id
        self._version, self._status = version, status
        self._move = _MOVE.replace("%s", mark)
        self._look = _LOOK.replace("%s", mark)
        self._insert_version = _insert(dl_table_versions, mark)
        self._insert_add = _insert(dl_add_files, mark)
        self._insert_status = _insert(dl_mirror_status, mark)
        self.head = table.head_version

    @classmethod
    def of(cls, metastore: Metastore, name: str) -> Self:
        """Take the newest version's rows as the pattern of all that follow."""
        with metastore.read() as connection:
            table = find_table(connection, name)
            rows = [
                connection.execute(
                    select(kind).where(
                        kind.c.table_id == table.table_id, kind.c.version == table.head_version
                    )
                ).one()
                for kind in (dl_table_versions, dl_mirror_status)
            ]
        driver, mark = _connect(metastore)
        return cls(driver, mark, table, tuple(rows[0]), tuple(rows[1]))

    def row(self, add: AddFile) -> Row:
        """The add's row but for its place, made beforehand."""
        return to_row(add, (0, 0, 0))[1][3:]

    def commit(self, add: Row) -> bool:
        """Commit as the version after the remembered head; False if that was not the head."""
        table_id, version = self._table_id, self.head + 1
        cursor = self._connection.cursor()
        cursor.execute(self._move, (version, version, version, version, table_id, self.head))
        if cursor.rowcount == 0:
            self._connection.rollback()
            return False
        commit_id = str(uuid4())
        cursor.execute(self._insert_version, (table_id, version, commit_id, *self._version[3:]))
        cursor.execute(self._insert_add, (table_id, version, 1, *add))
        cursor.execute(self._insert_status, (table_id, version, *self._status[2:]))
        self._connection.commit()
        self.head = version
        return True

    def look(self) -> None:
        """Read the head again."""
        row = self._connection.execute(self._look, (self._table_id,)).fetchone()
        self._connection.commit()
        self.head = row[0] if row else -1

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _connect(metastore: Metastore) -> tuple[Any, str]:
    """A connection of the driver's own, as durable as ours, and how it marks a parameter."""
    url = metastore.engine.url
    if metastore.dialect.name == "sqlite":
        embedded = sqlite3.connect(str(url.database))
        for setting in ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 4000"):
            embedded.execute(f"pragma {setting}")
        return embedded, "?"
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    driver = psycopg.connect(dsn)
    driver.prepare_threshold = 2
    return driver, "%s"


def _insert(table: Table, mark: str) -> str:
    names = table.columns.keys()
    places = ", ".join([mark] * len(names))
    return f"insert into {table.name} ({', '.join(names)}) values ({places})"
