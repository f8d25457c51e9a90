"""Bulk reads as Arrow batches, in bounded memory, past SQLAlchemy's row objects.

ADBC's low-level API for PostgreSQL (its DBAPI layer imports a data frame library), the driver's own
stream for DuckDB. SQLite goes through Python's own driver: ADBC brings a second copy of the SQLite
library, and two copies in one process drop each other's locks and share no write-ahead log, so
that the second one kept reading an old state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement, OperationalError
from sqlalchemy import BigInteger, Boolean, Integer, Select
from sqlalchemy.types import TypeEngine

from mirror_assets.delta.arrays import array_of
from mirror_assets.errors import DatabaseUnavailableError
from mirror_assets.metastore.database import Metastore

_BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCH_ROWS: Final = 4_096
#: Python's objects for so many rows stay in the processor's cache until they are an array
_SQLITE_ROWS: Final = 1_024
#: rows that cost less as Python's objects than a connection of ADBC
_FEW: Final = 5_000


def stream(metastore: Metastore, query: Select[Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a query, a batch at a time."""
    with ArrowReader(metastore) as reader:
        yield from reader.stream(query)


class ArrowReader:
    """Several bulk reads, one after the other, over one connection: opening one is not cheap."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._opened = ExitStack()
        self._connection: AdbcConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; the next read opens another."""
        self._connection = None
        self._opened.close()

    def stream(self, query: Select[Any], *, at_most: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a query, a batch at a time; to be read to its end before the next one.

        `at_most` tells that the rows are few: then no connection is opened for them.
        """
        match self._metastore.dialect.name:
            case "postgresql" if at_most is not None and at_most <= _FEW:
                yield from _few(self._metastore, query)
            case "postgresql":
                try:
                    yield from self._adbc(_sql(self._metastore, query))
                except (OperationalError, OSError) as exc:  # at the connect, and in the stream
                    message = f"the database cut a bulk read: {str(exc).partition(chr(10))[0]}"
                    raise DatabaseUnavailableError(message) from exc
            case "sqlite":
                yield from _sqlite(self._metastore, query)
            case _:
                yield from _duckdb(self._metastore, _sql(self._metastore, query))

    def _adbc(self, sql: str) -> Iterator[pa.RecordBatch]:
        if self._connection is None:
            url = self._metastore.engine.url.set(drivername="postgresql")
            dsn = url.render_as_string(hide_password=False)
            database = self._opened.enter_context(adbc_driver_postgresql.connect(dsn))
            self._connection = self._opened.enter_context(AdbcConnection(database))
        with AdbcStatement(self._connection) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            statement.set_sql_query(sql)
            handle, _ = statement.execute_query()
            yield from pa.RecordBatchReader.from_stream(handle)


def _few(metastore: Metastore, query: Select[Any]) -> Iterator[pa.RecordBatch]:
    with metastore.read() as connection:
        for rows in connection.execute(query).partitions(_BATCH_ROWS):
            yield _batch(rows, _schema(query))


def _sqlite(metastore: Metastore, query: Select[Any]) -> Iterator[pa.RecordBatch]:
    schema = _schema(query)
    with metastore.read() as connection:
        driver: Any = connection.connection.driver_connection
        # texts stay encoded, for Arrow wants them so
        driver.text_factory = bytes
        try:
            cursor = driver.execute(_sql(metastore, query))
            while rows := cursor.fetchmany(_SQLITE_ROWS):
                yield _batch(rows, schema)
        finally:
            driver.text_factory = str


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    return pa.RecordBatch.from_arrays(
        [array_of(values, kind) for values, kind in columns], schema=schema
    )


def _schema(query: Select[Any]) -> pa.Schema:
    return pa.schema([(c.name, _arrow_type(c.type)) for c in query.selected_columns])


def _arrow_type(kind: TypeEngine[Any]) -> pa.DataType:
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64() if isinstance(kind, BigInteger) else pa.int32()
    return pa.string()


def _duckdb(metastore: Metastore, sql: str) -> Iterator[pa.RecordBatch]:
    with metastore.read() as connection:
        driver: Any = connection.connection.driver_connection
        yield from driver.sql(sql).to_arrow_reader(_BATCH_ROWS)


def _sql(metastore: Metastore, query: Select[Any]) -> str:
    """The query as text; its values are numbers and names from the metastore itself."""
    compiled = query.compile(metastore.engine, compile_kwargs={"literal_binds": True})
    return str(compiled)
