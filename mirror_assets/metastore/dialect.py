"""What differs between PostgreSQL, SQLite and DuckDB, and nothing else."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Subquery,
    Table,
    TextClause,
    bindparam,
    func,
    literal,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.engine import Dialect as SqlDialect
from sqlalchemy.exc import SQLAlchemyError

from mirror_assets.errors import (
    MirrorAssetsError,
    TransientError,
)

Row = Sequence[Any]
#: from here on rows go through the engine's bulk road
BULK_ROWS: Final = 500
#: how often a mirror looks for commits where nobody announces them
_POLL_SECONDS: Final = 0.1


class RetryableError(TransientError):
    """The database rolled the transaction back and says that another try may pass."""

    code = "MA-111"
    default_remedy = "try again; nothing was committed"


class OutcomeUnknownError(TransientError):
    """The connection broke while COMMIT was on its way: it may have happened or not."""

    code = "MA-112"
    default_remedy = "ask again with the same commit id: it is found, or committed then"


class Prepared(Protocol):
    """A statement as the driver takes it."""

    @property
    def sql(self) -> str:
        """Its text, with the driver's own marks for parameters."""

    @property
    def returns_rows(self) -> bool:
        """Whether its answer is rows."""


#: a statement, and values in the order of its parameters
Step = tuple[Prepared, Sequence[Any]]


class Dialect(ABC):
    """One database engine."""

    name: str
    #: what its driver raises where it is called directly
    driver_error: type[Exception]
    #: whether one statement can write several tables: `with a as (insert ...) update ...`
    writes_tables_together: bool = False
    #: whether processes take turns with the whole database
    admits_one_process: bool = False

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the database raises, through SQLAlchemy or around it."""
        return (SQLAlchemyError, self.driver_error)

    @abstractmethod
    def create_engine(self, url: URL) -> Engine:
        """An engine whose write transactions take the writer's lock at their start."""

    def compiler(self, engine: Engine) -> SqlDialect:
        """What writes the statements that `cursor` runs."""
        return engine.dialect

    def run(
        self, connection: Connection, steps: Sequence[Step], *, is_all: bool = False
    ) -> list[list[Row]]:
        """Run statements in their order, by the shortest way that the driver has; their rows.

        `is_all`: the transaction has nothing else to do, so that its COMMIT may go along. Raises
        OutcomeUnknownError if the connection broke while the COMMIT of a change was on its way.
        """
        del is_all
        answers: list[list[Row]] = []
        for statement, values in steps:
            cursor = _cursor(connection, statement)
            cursor.execute(statement.sql, values)
            answers.append(cursor.fetchall() if statement.returns_rows else [])
        return answers

    @abstractmethod
    def now_ms(self) -> ColumnElement[int]:
        """The database's own clock, epoch milliseconds."""

    @abstractmethod
    def open_rows(self, end: Column[int]) -> Select[Any]:
        """The files of `table_id` with the paths `texts` that no version has ended yet.

        Found by path through the partial index, whatever the planner knows of the table.
        """

    def texts(self, values: Sequence[str]) -> Any:
        """The value of the parameter `texts`."""
        return values

    def among(self, column: Column[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Whether the column is one of many numbers."""
        return column.in_(numbers)

    @abstractmethod
    def insert_bulk(self, connection: Connection, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows in the order of the table's columns, the fastest way."""

    @abstractmethod
    def explain(self, error: Exception) -> MirrorAssetsError | None:
        """The driver's error in our words; None for what only a bug explains."""

    def one_writer(self) -> AbstractContextManager[object]:
        """Held around a write transaction, where the engine would refuse a second one."""
        return nullcontext()

    def kept_open(self, engine: Engine) -> AbstractContextManager[object]:
        """Held around a series of transactions, where opening the database anew is dear."""
        del engine
        return nullcontext()

    def announcement(self) -> TextClause | None:
        """What tells waiting mirrors, when the transaction commits, that something is pending."""
        return None

    @contextmanager
    def commits_awaited(self, engine: Engine) -> Iterator[Callable[[float], bool]]:
        """A function that waits for an announcement, at most so many seconds.

        Without announcements it is a short sleep: the caller looks for itself.
        """
        del engine
        yield _nap

    def lock(self, query: Select[Any]) -> Select[Any]:
        """The query with row locks, where the transaction's start has not locked already."""
        return query

    def pairs(self, values: Sequence[tuple[int, int]]) -> Subquery:
        """Pairs of numbers as a relation with the columns `first` and `second`."""
        firsts, seconds = zip(*values, strict=True) if values else ((), ())
        return select(
            func.unnest(literal(list(firsts), ARRAY(BigInteger))).label("first"),
            func.unnest(literal(list(seconds), ARRAY(BigInteger))).label("second"),
        ).subquery("pairs")

    def skip_locked(self, query: Select[Any], table: Table) -> Select[Any]:
        """The query with row locks on `table`, past rows that another transaction holds."""
        del table
        return query

    def update_rows(
        self,
        connection: Connection,
        table: Table,
        *,
        keys: Sequence[str],
        columns: Sequence[str],
        rows: Sequence[Row],
    ) -> None:
        """Set `columns` where `keys` match, for all rows at once; a row has both, keys first."""
        if not rows:
            return
        names = (*keys, *columns)
        arrays = zip(names, zip(*rows, strict=True), strict=True)
        given = select(
            *(
                func.unnest(literal(list(values), ARRAY(type(table.c[name].type)))).label(name)
                for name, values in arrays
            )
        ).subquery("given")
        matches = (table.c[name] == given.c[name] for name in keys)
        values = {name: given.c[name] for name in columns}
        connection.execute(table.update().values(values).where(*matches))


def open_files(end: Column[int]) -> Select[Any]:
    table = end.table
    columns = (table.c[name] for name in ("version", "ordinal", "path", "dv_id", "size"))
    return select(*columns).where(table.c.table_id == bindparam("table_id"), end.is_(None))


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _cursor(connection: Connection, statement: Prepared) -> Any:
    """One for each statement: what a driver learns of it stays with its cursor."""
    cursors = connection.info
    if statement not in cursors:
        cursors[statement] = connection.connection.cursor()
    return cursors[statement]


def _nap(seconds: float) -> bool:
    time.sleep(min(seconds, _POLL_SECONDS))
    return False
