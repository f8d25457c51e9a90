"""The metastore as relations for people and engines: plain columns, one row per thing.

Like the metadata tables of other formats: `tables commits history files partitions mirror_status
lag`. A view is a query; whoever reads it chooses columns, conditions and a slice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Integer,
    Row,
    Select,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)

from mirror_assets.errors import ConfigurationError, TableNotFoundError, VersionNotFoundError
from mirror_assets.metastore.arrow_reader import stream
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import (
    dl_add_files,
    dl_mirror_status,
    dl_table_versions,
    dl_tables,
)

ViewName = Literal["tables", "commits", "history", "files", "partitions", "mirror_status", "lag"]
#: the kinds of values that columns have, by the names that Spark and Arrow share
ColumnKind = Literal["int", "bigint", "boolean", "string"]
_ARROW: Final[dict[ColumnKind, pa.DataType]] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column compared with a value: `= > >= < <= in null notnull prefix`."""

    column: str
    test: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A table at a version, and the versions of its rows that a reader takes; ends included.

    All slices of one read name the same version of a table, so that they are one picture.
    """

    table_id: int
    at_version: int
    first: int
    last: int


class View:
    """One relation."""

    def __init__(self, name: ViewName) -> None:
        self.name = name
        self._source, self._columns = _SOURCES[name]()

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """The columns, and the kind of their values."""
        return {name: _kind(column) for name, column in self._columns.items()}

    def read(
        self,
        metastore: Metastore,
        columns: Sequence[str],
        conditions: Sequence[Condition],
        slices: Sequence[Slice],
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the slices, as Arrow with exactly the columns asked for."""
        kinds = self.kinds
        schema = pa.schema([(name, _ARROW[kinds[name]]) for name in columns])
        for each in slices:
            query = self._query(columns, conditions, each)
            for batch in stream(metastore, query):
                yield _cast(batch, schema)

    def _query(
        self, columns: Sequence[str], conditions: Sequence[Condition], part: Slice
    ) -> Select[Any]:
        chosen = [self._columns[name].label(name) for name in columns]
        query = self._source(part).with_only_columns(*chosen, maintain_column_froms=True)
        return query.where(*(self._test(condition) for condition in conditions))

    def _test(self, condition: Condition) -> ColumnElement[bool]:
        column, value = self._columns[condition.column], condition.value
        match condition.test:
            case "null":
                return column.is_(None)
            case "notnull":
                return column.is_not(None)
            case "in":
                return column.in_(list(value))
            case "prefix":
                begins: ColumnElement[bool] = func.substr(column, 1, len(value)) == value
                return begins
            case test:
                found: ColumnElement[bool] = _COMPARISONS[test](column, value)
                return found


def view_of(name: str) -> View:
    """The view of a name. Raises ConfigurationError for what is none."""
    for known in _SOURCES:
        if known == name:
            return View(known)
    listed = ", ".join(_SOURCES)
    raise ConfigurationError(f"there is no view {name!r}", remedy=f"use one of: {listed}")


def plan_slices(
    metastore: Metastore, *, table: str | None, version: int | None, count: int
) -> list[list[Slice]]:
    """At most `count` lists of slices that hold the same number of rows, more or less.

    Without a table, all tables at their heads. The state that is read is fixed here. Raises
    TableNotFoundError and VersionNotFoundError: a name mistyped is not an empty answer.
    """
    tables, versions = dl_tables, dl_table_versions
    query = select(tables.c.table_id, tables.c.head_version, tables.c.floor_version)
    if table is not None:
        query = query.where(tables.c.name == table)
    with metastore.read() as connection:
        heads = connection.execute(query.order_by(tables.c.table_id)).all()
        if table is not None:
            _require(table, version, heads)
        weights = []
        for table_id, head, _ in heads:
            at = head if version is None else min(version, head)
            listed = (
                select(versions.c.version, versions.c.num_adds)
                .where(versions.c.table_id == table_id, versions.c.version <= at)
                .order_by(versions.c.version)
            )
            weights += [(table_id, at, v, 1 + n) for v, n in connection.execute(listed)]
    return _cut(weights, count)


def _require(table: str, version: int | None, heads: Sequence[Row[Any, Any, Any]]) -> None:
    if not heads:
        raise TableNotFoundError("no table of this name is registered", table=table)
    _, head, floor = heads[0]
    if version is not None and not floor <= version <= head:
        remedy = f"give one of the versions {floor} to {head}"
        message = "SQL does not have this version"
        raise VersionNotFoundError(message, table=table, version=version, remedy=remedy)


def _cut(weights: Sequence[tuple[int, int, int, int]], count: int) -> list[list[Slice]]:
    """Cut where a share is full; versions of one table that follow each other are one slice."""
    share = sum(weight for *_, weight in weights) / max(1, count)
    groups: list[list[Slice]] = []
    filled = share
    for table_id, at, version, weight in weights:
        if filled >= share and len(groups) < count:
            groups.append([])
            filled = 0
        group = groups[-1]
        goes_on = bool(group) and group[-1].table_id == table_id
        first = group.pop().first if goes_on else version
        group.append(Slice(table_id=table_id, at_version=at, first=first, last=version))
        filled += weight
    return groups


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Engines differ in the width of numbers, and SQLite knows no booleans."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _kind(column: ColumnElement[Any]) -> ColumnKind:
    if isinstance(column.type, Boolean):
        return "boolean"
    if isinstance(column.type, BigInteger):
        return "bigint"
    return "int" if isinstance(column.type, Integer) else "string"


_Source = tuple[Callable[[Slice], Select[Any]], Mapping[str, ColumnElement[Any]]]


def _tables() -> _Source:
    hidden = {"table_id", "name", "location_key", "num_removes"}
    columns = {"table": dl_tables.c.name}
    columns |= {c.name: c for c in dl_tables.c if c.name not in hidden}

    def source(part: Slice) -> Select[Any]:
        query = select(dl_tables).where(dl_tables.c.table_id == part.table_id)
        return _once(query, part)

    return source, columns


def _commits() -> _Source:
    hidden = {"table_id", "raw_file", "commit_info_raw", "commit_info_ordinal"}
    columns: dict[str, ColumnElement[Any]] = {"table": dl_tables.c.name}
    columns |= {c.name: c for c in dl_table_versions.c if c.name not in hidden}
    return _versions, columns


def _history() -> _Source:
    status = dl_mirror_status.c
    columns = {
        name: column
        for name, column in _commits()[1].items()
        if name in ("table", "version", "timestamp_ms", "operation", "commit_info", "num_adds")
        or name in ("num_removes", "num_files", "size_bytes", "sha256")
    }
    columns |= {
        "mirror_status": status.status,
        "published_at_ms": status.published_at_ms,
        "lag_ms": status.lag_ms,
    }
    of_commit = and_(
        status.table_id == dl_table_versions.c.table_id,
        status.version == dl_table_versions.c.version,
        status.artifact == "commit",
    )

    def source(part: Slice) -> Select[Any]:
        joined = dl_table_versions.join(
            dl_tables, dl_tables.c.table_id == dl_table_versions.c.table_id
        ).outerjoin(dl_mirror_status, of_commit)
        return _of_versions(select(dl_table_versions).select_from(joined), part)

    return source, columns


def _files() -> _Source:
    names = ("version", "ordinal", "path", "partition_values", "size", "modification_time")
    columns: dict[str, ColumnElement[Any]] = {"table": dl_tables.c.name}
    columns |= {name: dl_add_files.c[name] for name in (*names, "data_change", "stats", "tags")}

    def source(part: Slice) -> Select[Any]:
        adds = dl_add_files.c
        joined = dl_add_files.join(dl_tables, dl_tables.c.table_id == adds.table_id)
        return (
            select(dl_add_files)
            .select_from(joined)
            .where(
                adds.table_id == part.table_id,
                adds.version.between(part.first, part.last),
                or_(adds.removed_version.is_(None), adds.removed_version > part.at_version),
            )
        )

    return source, columns


def _partitions() -> _Source:
    adds = dl_add_files.c
    columns = {
        "table": dl_tables.c.name,
        "partition_values": adds.partition_values,
        "num_files": cast(func.count(), BigInteger),
        "size_bytes": cast(func.sum(adds.size), BigInteger),
    }

    def source(part: Slice) -> Select[Any]:
        whole = Slice(
            table_id=part.table_id, at_version=part.at_version, first=0, last=part.at_version
        )
        query = _files()[0](whole).group_by(dl_tables.c.name, adds.partition_values)
        return _once(query, part)

    return source, columns


def _mirror_status() -> _Source:
    status = dl_mirror_status.c
    columns: dict[str, ColumnElement[Any]] = {"table": dl_tables.c.name}
    columns |= {c.name: c for c in status if not c.name.startswith(("table_id", "lease"))}

    def source(part: Slice) -> Select[Any]:
        joined = dl_mirror_status.join(dl_tables, dl_tables.c.table_id == status.table_id)
        return (
            select(dl_mirror_status)
            .select_from(joined)
            .where(status.table_id == part.table_id, status.version.between(part.first, part.last))
        )

    return source, columns


def _lag() -> _Source:
    versions, tables = dl_table_versions.c, dl_tables.c
    oldest = (
        select(func.min(versions.committed_at_ms))
        .where(versions.table_id == tables.table_id, versions.version > tables.mirrored_version)
        .correlate(dl_tables)
        .scalar_subquery()
    )
    columns: dict[str, ColumnElement[Any]] = {
        "table": tables.name,
        "head_version": tables.head_version,
        "mirrored_version": tables.mirrored_version,
        "lag_versions": cast(tables.head_version - tables.mirrored_version, BigInteger),
        "oldest_unmirrored_at_ms": cast(oldest, BigInteger),
        "is_behind": case((tables.head_version > tables.mirrored_version, 1), else_=0),
    }
    return _tables()[0], columns


def _versions(part: Slice) -> Select[Any]:
    joined = dl_table_versions.join(dl_tables, dl_tables.c.table_id == dl_table_versions.c.table_id)
    return _of_versions(select(dl_table_versions).select_from(joined), part)


def _of_versions(query: Select[Any], part: Slice) -> Select[Any]:
    versions = dl_table_versions.c
    return query.where(
        versions.table_id == part.table_id, versions.version.between(part.first, part.last)
    )


def _once(query: Select[Any], part: Slice) -> Select[Any]:
    """A row about a whole table stands in the slice that has its newest version."""
    return query if part.last == part.at_version else query.where(dl_tables.c.table_id < 0)


_SOURCES: Final[dict[ViewName, Callable[[], _Source]]] = {
    "tables": _tables,
    "commits": _commits,
    "history": _history,
    "files": _files,
    "partitions": _partitions,
    "mirror_status": _mirror_status,
    "lag": _lag,
}
