"""The statements of a commit: written with SQLAlchemy, compiled once, run by the driver.

A one-file commit is three statements, six where each writes one table. SQLAlchemy's way of running
one costs several times what the database takes for it, so these few go to the driver; everything
else does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    Connection,
    Engine,
    Insert,
    Select,
    Table,
    TextClause,
    Update,
    and_,
    bindparam,
    func,
    select,
)

from mirror_assets.metastore.dialect import BULK_ROWS, Dialect, Row, Step
from mirror_assets.metastore.tables import (
    dl_metadata_updates,
    dl_mirror_status,
    dl_protocol_updates,
    dl_table_versions,
    dl_tables,
)

#: what `summary` tells of the version, and the columns of the protocol and the metaData
TOTALS: Final = ("timestamp_ms", "num_files", "size_bytes")
IN_FORCE: Final = (*dl_protocol_updates.c, *dl_metadata_updates.c)
_VERSION: Final = tuple(dl_table_versions.columns.keys())
_MOVED: Final = (
    "head_version",
    "head_timestamp_ms",
    "protocol_version",
    "metadata_version",
    "num_files",
    "size_bytes",
    "num_removes",
)


class Prepared:
    """A statement as the driver takes it."""

    def __init__(
        self,
        statement: Select[Any] | Insert | Update | TextClause,
        dialect: Dialect,
        engine: Engine,
    ) -> None:
        compiled: Any = statement.compile(dialect=dialect.compiler(engine))
        self._dialect = dialect
        self.sql = str(compiled)
        self.returns_rows = isinstance(statement, Select)
        self._take = _taking(compiled.positiontup or [])
        #: values that stand in the statement itself
        self._constants = {k: v for k, v in compiled.params.items() if v is not None}

    def with_(self, parameters: Mapping[str, Any]) -> Step:
        """The statement with its values."""
        complete = {**self._constants, **parameters} if self._constants else parameters
        return self, self._take(complete)

    def run(
        self, connection: Connection, parameters: Mapping[str, Any], *, is_all: bool = False
    ) -> list[Any]:
        """Execute it; the rows as tuples, none for what returns none."""
        return self._dialect.run(connection, [self.with_(parameters)], is_all=is_all)[0]


class Statements:
    """The prepared statements of one database."""

    def __init__(self, dialect: Dialect, engine: Engine) -> None:
        self.dialect = dialect
        self._engine = engine
        self._open_rows: dict[Column[int], Prepared] = {}
        self._inserts: dict[Table, Prepared] = {}
        self._known_ratifying: dict[tuple[Table, ...], list[Prepared]] = {}

    @cached_property
    def lock_head(self) -> Prepared:
        """One table by its `name`, locked, then the database's time."""
        query = select(dl_tables, self.dialect.now_ms())
        query = query.where(dl_tables.c.name == bindparam("name"))
        return Prepared(self.dialect.lock(query), self.dialect, self._engine)

    @cached_property
    def announce(self) -> Prepared | None:
        """What tells waiting mirrors of the commit."""
        announcement = self.dialect.announcement()
        if announcement is None:
            return None
        return Prepared(announcement, self.dialect, self._engine)

    @cached_property
    def summary(self) -> Prepared:
        """One table by its `name`, its version `at` (null: the head) and what is in force there.

        Of several rows the last counts: a commit may speak after the checkpoint of its version.
        """
        head, version = dl_tables.c, dl_table_versions
        at = func.coalesce(bindparam("at", type_=BigInteger), head.head_version)
        query = select(dl_tables, *(version.c[name] for name in TOTALS), *IN_FORCE)
        query = query.select_from(dl_tables).where(head.name == bindparam("name"))
        is_at = and_(version.c.table_id == head.table_id, version.c.version == at)
        query = query.outerjoin(version, is_at)
        for actions in (dl_protocol_updates, dl_metadata_updates):
            known = actions.alias()
            newest = select(func.max(known.c.version)).where(
                known.c.table_id == head.table_id,
                known.c.version.between(head.floor_version, at),
            )
            is_newest = actions.c.version == newest.scalar_subquery()
            query = query.outerjoin(actions, and_(actions.c.table_id == head.table_id, is_newest))
        query = query.order_by(dl_protocol_updates.c.ordinal, dl_metadata_updates.c.ordinal)
        return Prepared(query, self.dialect, self._engine)

    def write(
        self,
        connection: Connection,
        rows: Mapping[Table, Sequence[Row]],
        version: Mapping[str, Any],
        head: Mapping[str, Any],
        *,
        announce: bool,
        is_all: bool,
    ) -> None:
        """Write a commit: its actions, its version, the mirror's order for it, the table's head.

        `version` and `head` are values by column; columns left out of the version are null. With
        `announce` waiting mirrors are told; `is_all` as in `Dialect.run`.
        """
        together = tuple(table for table, some in rows.items() if self._goes_along(some))
        of_version, of_head = map(version.get, _VERSION), map(head.__getitem__, _MOVED)
        values = chain(of_version, of_head, *(row for table in together for row in rows[table]))
        parameters = dict(zip(_parameter_names(together), values, strict=True))
        steps: list[Step] = []
        for table, some in rows.items():
            if table in together:
                continue
            if len(some) < BULK_ROWS:
                steps += self._inserting(table, some)
            else:
                self.dialect.insert_bulk(connection, table, some)
        steps += [statement.with_(parameters) for statement in self._ratifying(together)]
        if announce and self.announce is not None:
            steps.append(self.announce.with_({}))
        self.dialect.run(connection, steps, is_all=is_all)

    def _goes_along(self, rows: Sequence[Row]) -> bool:
        return self.dialect.writes_tables_together and len(rows) == 1

    def _ratifying(self, together: tuple[Table, ...]) -> list[Prepared]:
        """The version, its order and the head, with the tables that have one row.

        One statement where the database can write several tables with it.
        """
        if together not in self._known_ratifying:
            version, order, head = _values(dl_table_versions), _order(), _head()
            if self.dialect.writes_tables_together:
                rows = (_values(table).cte(f"row_{table.name}") for table in together)
                head = head.add_cte(version.cte("version"), order.cte("order"), *rows)
                statements = [Prepared(head, self.dialect, self._engine)]
            else:
                statements = [
                    Prepared(s, self.dialect, self._engine) for s in (version, order, head)
                ]
            self._known_ratifying[together] = statements
        return self._known_ratifying[together]

    def open_rows(self, end: Column[int]) -> Prepared:
        """The files of `table_id` with the paths `texts` that no version has ended yet."""
        if end not in self._open_rows:
            self._open_rows[end] = Prepared(self.dialect.open_rows(end), self.dialect, self._engine)
        return self._open_rows[end]

    def insert(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows, by the road that suits their number."""
        if len(rows) >= BULK_ROWS:
            self.dialect.insert_bulk(connection, table, rows)
        else:
            self.dialect.run(connection, self._inserting(table, rows))

    def _inserting(self, table: Table, rows: Sequence[Row]) -> list[Step]:
        if table not in self._inserts:
            self._inserts[table] = Prepared(table.insert(), self.dialect, self._engine)
        return [(self._inserts[table], row) for row in rows]


def _taking(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """What takes the values of these names out of a mapping."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]


@lru_cache
def _parameter_names(together: tuple[Table, ...]) -> tuple[str, ...]:
    """What the values of a version, its head and one row of each table are called."""
    moved = (_name(dl_tables.c[name]) for name in _MOVED)
    tables = (dl_table_versions, *together)
    of_version, *of_rows = ([_name(column) for column in table.columns] for table in tables)
    return tuple(chain(of_version, moved, *of_rows))


def _name(column: Column[Any]) -> str:
    return f"{column.table.name}_{column.name}"


def _parameters(table: Table) -> dict[str, BindParameter[Any]]:
    return {c.name: bindparam(_name(c), type_=c.type) for c in table.columns}


def _values(table: Table) -> Insert:
    return table.insert().values(_parameters(table))


def _order() -> Insert:
    version = _parameters(dl_table_versions)
    return dl_mirror_status.insert().values(
        table_id=version["table_id"],
        version=version["version"],
        sha256=version["sha256"],
        artifact="commit",
        status="PENDING",
        attempts=0,
    )


def _head() -> Update:
    table_id = _parameters(dl_table_versions)["table_id"]
    moved: dict[str, BindParameter[Any]] = {
        name: bindparam(_name(dl_tables.c[name])) for name in _MOVED
    }
    return dl_tables.update().where(dl_tables.c.table_id == table_id).values(moved)
