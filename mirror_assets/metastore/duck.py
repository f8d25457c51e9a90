"""DuckDB, which admits one process at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    NullPool,
    Select,
    Table,
    Text,
    bindparam,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.engine import URL

from mirror_assets.errors import (
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    MirrorAssetsError,
    SchemaRevisionError,
)
from mirror_assets.metastore.columns import Columns
from mirror_assets.metastore.dialect import Dialect, RetryableError, Row, first_line, open_files

_LOCK_SECONDS: Final = 30.0
#: by file: one writer at a time in this process, through however many metastores
_WRITERS: Final[dict[str, threading.Lock]] = {}
_ARROW_TYPES: Final[dict[type[Any], pa.DataType]] = {
    Integer: pa.int32(),
    BigInteger: pa.int64(),
    Text: pa.string(),
    Boolean: pa.bool_(),
    LargeBinary: pa.binary(),
}


class DuckDbDialect(Dialect):
    """DuckDB, which admits one process at a time: opened briefly, waited for while locked."""

    name = "duckdb"
    driver_error = duckdb.Error
    admits_one_process = True

    def __init__(self) -> None:
        self._writer = threading.Lock()

    def kept_open(self, engine: Engine) -> AbstractContextManager[object]:
        return engine.connect()

    def one_writer(self) -> AbstractContextManager[object]:
        return self._writer

    def create_engine(self, url: URL) -> Engine:
        self._writer = _WRITERS.setdefault(str(Path(url.database or "").resolve()), self._writer)
        engine = create_engine(url.set(drivername="duckdb"), poolclass=NullPool)
        event.listen(engine, "do_connect", _connect_duckdb)
        return engine

    def now_ms(self) -> ColumnElement[int]:
        return func.epoch_ms(func.now())

    def open_rows(self, end: Column[int]) -> Select[Any]:
        wanted = select(func.unnest(bindparam("texts", type_=ARRAY(Text))))
        return open_files(end).where(end.table.c.path.in_(wanted))

    def insert_bulk(self, connection: Connection, table: Table, rows: Iterable[Row]) -> None:
        columns = Columns.of(rows)
        if not columns:
            return
        types = [_ARROW_TYPES[type(column.type)] for column in table.columns]
        arrays = [pa.array(c, t) for c, t in zip(columns.values, types, strict=True)]
        driver: Any = connection.connection.driver_connection
        driver.register("incoming", pa.Table.from_arrays(arrays, names=table.columns.keys()))
        incoming = select(*(Column(c.name, c.type) for c in table.columns)).select_from(
            Table("incoming", type(table.metadata)())
        )
        connection.execute(table.insert().from_select(table.columns.keys(), incoming))
        driver.unregister("incoming")

    def explain(self, error: Exception) -> MirrorAssetsError | None:
        match error:
            case duckdb.TransactionException():
                return RetryableError(first_line(error))
            case duckdb.CatalogException():
                return SchemaRevisionError(first_line(error))
            case duckdb.InvalidInputException():
                return DatabaseReadOnlyError(first_line(error))
            case duckdb.IOException():
                return DatabaseUnavailableError(first_line(error))
        return None


def _connect_duckdb(dialect: Any, _record: object, args: Any, kwargs: Any) -> Any:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return dialect.connect(*args, **kwargs)
        #: held by another process, or by a thread of ours that is just closing it
        except (duckdb.IOException, duckdb.BinderException) as exc:
            if "Could not set lock" not in str(exc) and "file handle conflict" not in str(exc):
                raise
            if time.monotonic() > deadline:
                message = "another process has the DuckDB metastore open; DuckDB admits only one"
                raise DatabaseLockedError(message) from exc
            time.sleep(0.02)
