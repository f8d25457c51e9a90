"""PostgreSQL through psycopg 3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson
import psycopg
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    TextClause,
    any_,
    bindparam,
    cast,
    column,
    create_engine,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL
from sqlalchemy.engine import Dialect as SqlDialect

from mirror_assets.errors import (
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    MirrorAssetsError,
    SchemaRevisionError,
)
from mirror_assets.metastore.columns import Columns
from mirror_assets.metastore.dialect import (
    Dialect,
    OutcomeUnknownError,
    RetryableError,
    Row,
    Step,
    first_line,
    open_files,
)
from mirror_assets.metastore.postgres_pipeline import Session
from mirror_assets.metastore.postgres_sessions import CONNECT_ARGS, watch

_CHANNEL: Final = "mirror_assets_commits"
#: where a connection keeps what it has prepared
_SESSION: Final = "prepared"
_COPY_TYPES: Final[dict[type[Any], str]] = {
    Integer: "int4",
    BigInteger: "int8",
    Text: "text",
    Boolean: "bool",
    LargeBinary: "bytea",
}


class PostgresDialect(Dialect):
    """PostgreSQL through psycopg 3."""

    name = "postgresql"
    driver_error = psycopg.Error
    writes_tables_together = True

    def create_engine(self, url: URL) -> Engine:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=8,
            max_overflow=24,
            connect_args={k: v for k, v in CONNECT_ARGS.items() if k not in url.query},
        )
        watch(engine)
        return engine

    def compiler(self, engine: Engine) -> SqlDialect:
        del engine
        return PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]

    def run(
        self, connection: Connection, steps: Sequence[Step], *, is_all: bool = False
    ) -> list[list[Row]]:
        if _SESSION not in connection.info:
            driver: Any = connection.connection.driver_connection
            connection.info[_SESSION] = Session(driver)
        session: Session = connection.info[_SESSION]
        try:
            return session.run(steps, commit=is_all)
        except psycopg.Error as exc:
            writes = not all(statement.returns_rows for statement, _ in steps)
            if is_all and writes and session.is_closed:
                message = f"the connection broke during COMMIT: {first_line(exc)}"
                raise OutcomeUnknownError(message) from exc
            raise

    def now_ms(self) -> ColumnElement[int]:
        return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)

    def open_rows(self, end: Column[int]) -> Select[Any]:
        texts = cast(bindparam("texts", type_=Text), JSON)
        each = func.json_array_elements_text(texts).table_valued("path", name="wanted")
        wanted = each.render_derived()
        #: one look-up per path: `path = any(...)` is a mere filter while statistics are stale
        found = open_files(end).where(end.table.c.path == wanted.c.path).offset(0).lateral("found")
        return select(*found.c).select_from(wanted, found)

    def texts(self, values: Sequence[str]) -> str:
        return orjson.dumps(values).decode()

    def among(self, column: Column[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """As one text: psycopg takes longer over a parameter for each than the server."""
        wanted = "{" + ",".join(map(str, numbers)) + "}"
        return column == any_(cast(literal(wanted), ARRAY(column.type)))

    def lock(self, query: Select[Any]) -> Select[Any]:
        return query.with_for_update()

    def skip_locked(self, query: Select[Any], table: Table) -> Select[Any]:
        return query.with_for_update(of=table, skip_locked=True)

    def announcement(self) -> TextClause:
        return text(f"notify {_CHANNEL}")

    @contextmanager
    def commits_awaited(self, engine: Engine) -> Iterator[Callable[[float], bool]]:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"listen {_CHANNEL}")
            driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment] # SQLAlchemy types it as Any | None
            yield lambda seconds: any(True for _ in driver.notifies(timeout=seconds, stop_after=1))
            connection.exec_driver_sql(f"unlisten {_CHANNEL}")

    def insert_bulk(self, connection: Connection, table: Table, rows: Iterable[Row]) -> None:
        columns = Columns.of(rows)
        if not columns:
            return
        given = columns.given(table.columns.keys())
        statement = psycopg.sql.SQL("copy {} ({}) from stdin (format binary)").format(
            psycopg.sql.Identifier(table.name),
            psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, given)),
        )
        driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment] # SQLAlchemy types it as Any | None
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([_COPY_TYPES[type(table.c[name].type)] for name in given])
            for row in Columns(list(given.values())):
                copy.write_row(row)

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
        names = [str(name) for name in (*keys, *columns)]
        #: one text: psycopg makes arrays element by element
        given_text = orjson.dumps([dict(zip(names, row, strict=True)) for row in rows]).decode()
        each = func.json_to_recordset(cast(literal(given_text), JSON)).table_valued(
            *(column(name, table.c[name].type) for name in names), name="given"
        )
        given = each.render_derived(with_types=True)
        matches = (table.c[name] == given.c[name] for name in keys)
        values = {name: given.c[name] for name in columns}
        connection.execute(table.update().values(values).where(*matches))

    def end_files(
        self,
        connection: Connection,
        end: Column[int],
        table_id: int,
        keys: Sequence[tuple[str, str, int]],
    ) -> list[tuple[int, int, int]]:
        """End the open files with these (path, deletion vector, version that ends them).

        Returns their number and size by the version that ended them.
        """
        given_text = orjson.dumps([{"path": p, "dv_id": d, "at": at} for p, d, at in keys]).decode()
        given = (
            func.json_to_recordset(cast(literal(given_text), JSON))
            .table_valued(
                column("path", Text), column("dv_id", Text), column("at", BigInteger), name="given"
            )
            .render_derived(with_types=True)
        )
        table = end.table
        of_table = table.c.table_id == table_id
        #: one look-up per path, as in open_rows
        found = (
            select(table.c.version, table.c.ordinal, table.c.size)
            .where(of_table, end.is_(None))
            .where(table.c.path == given.c.path, table.c.dv_id == given.c.dv_id)
            .offset(0)
            .lateral("found")
        )
        ended = select(given.c.at, *found.c).select_from(given, found).cte("ended")
        same_row = (table.c.version == ended.c.version, table.c.ordinal == ended.c.ordinal)
        marked = table.update().values({end.name: ended.c.at}).where(of_table, *same_row)
        size = func.coalesce(func.sum(ended.c.size), 0)
        totals = select(ended.c.at, func.count(), cast(size, BigInteger)).group_by(ended.c.at)
        rows = connection.execute(totals.add_cte(marked.returning(table.c.ordinal).cte("marked")))
        return [(at, number, size) for at, number, size in rows]

    def copy_text(
        self,
        connection: Connection,
        table: Table,
        columns: Sequence[str],
        blocks: Iterable[bytes],
        *,
        null: str,
    ) -> None:
        """Insert rows that are text already, in COPY's own format."""
        statement = psycopg.sql.SQL(
            "copy {} ({}) from stdin (format text, encoding 'UTF8', null {})"
        ).format(
            psycopg.sql.Identifier(table.name),
            psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, columns)),
            psycopg.sql.Literal(null),
        )
        driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment] # SQLAlchemy types it as Any | None
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for block in blocks:
                copy.write(block)

    def explain(self, error: Exception) -> MirrorAssetsError | None:
        match error:
            case (
                psycopg.errors.DeadlockDetected()
                | psycopg.errors.SerializationFailure()
                | psycopg.errors.LockNotAvailable()
            ):
                return RetryableError(first_line(error))
            case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
                return SchemaRevisionError(first_line(error))
            case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InsufficientPrivilege():
                return DatabaseReadOnlyError(first_line(error))
            case psycopg.OperationalError() | psycopg.errors.IdleInTransactionSessionTimeout():
                return DatabaseUnavailableError(first_line(error))
        return None
