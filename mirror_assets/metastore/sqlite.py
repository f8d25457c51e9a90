"""SQLite in WAL mode, durable at every commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Subquery,
    Table,
    Text,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.engine import URL

from mirror_assets.errors import (
    ConfigurationError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    MirrorAssetsError,
    SchemaRevisionError,
)
from mirror_assets.metastore.columns import Columns
from mirror_assets.metastore.dialect import Dialect, Row, open_files

_BUSY_SECONDS: Final = 60.0


class SqliteDialect(Dialect):
    """SQLite in WAL mode; durable at every commit."""

    name = "sqlite"
    driver_error = sqlite3.Error

    def create_engine(self, url: URL) -> Engine:
        engine = create_engine(
            url.set(drivername="sqlite"),
            connect_args={
                "timeout": _BUSY_SECONDS,
                "isolation_level": None,
                "check_same_thread": False,
            },
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def now_ms(self) -> ColumnElement[int]:
        seconds = func.julianday("now") - 2440587.5
        return cast(func.round(seconds * 86_400_000), BigInteger)

    def open_rows(self, end: Column[int]) -> Select[Any]:
        each = func.json_each(bindparam("texts", type_=Text)).table_valued("value")
        return open_files(end).where(end.table.c.path.in_(select(each.c.value)))

    def texts(self, values: Sequence[str]) -> str:
        return orjson.dumps(values).decode()

    def pairs(self, values: Sequence[tuple[int, int]]) -> Subquery:
        each = func.json_each(orjson.dumps(values).decode()).table_valued("value")
        return select(
            func.json_extract(each.c.value, "$[0]").label("first"),
            func.json_extract(each.c.value, "$[1]").label("second"),
        ).subquery("pairs")

    def update_rows(
        self,
        connection: Connection,
        table: Table,
        *,
        keys: Sequence[str],
        columns: Sequence[str],
        rows: Sequence[Row],
    ) -> None:
        if not rows:
            return
        parameters = [f"given_{name}" for name in (*keys, *columns)]
        matches = (table.c[name] == bindparam(f"given_{name}") for name in keys)
        values: dict[str, Any] = {name: bindparam(f"given_{name}") for name in columns}
        connection.execute(
            table.update().values(values).where(*matches),
            [dict(zip(parameters, row, strict=True)) for row in rows],
        )

    def insert_bulk(self, connection: Connection, table: Table, rows: Iterable[Row]) -> None:
        columns = Columns.of(rows)
        if not columns:
            return
        given = columns.given(table.columns.keys())
        insert = table.insert().values({name: bindparam(name) for name in given})
        compiled: Any = insert.compile(dialect=connection.dialect)
        cursor = connection.connection.cursor()
        cursor.executemany(str(compiled), Columns([given[name] for name in compiled.positiontup]))
        cursor.close()

    def explain(self, error: Exception) -> MirrorAssetsError | None:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return DatabaseLockedError(f"SQLite says: {error}")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return DatabaseReadOnlyError(f"SQLite says: {error}")
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_FULL:
                return DatabaseUnavailableError(f"SQLite says: {error}")
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                remedy = "check the metastore URL: the file is not a healthy SQLite database"
                return ConfigurationError(f"SQLite says: {error}", remedy=remedy)
            case sqlite3.SQLITE_ERROR if str(error).startswith("no such"):
                return SchemaRevisionError(f"SQLite says: {error}")
        return None


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    #: hot pages are written back once for many commits
    connection.execute("pragma wal_autocheckpoint = 4000")
    #: 16 MB: a commit of thousands of files need not write pages out before it is done
    connection.execute("pragma cache_size = -16384")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    driver: Any = connection.connection.driver_connection
    driver.execute("begin immediate" if writes else "begin")
