"""The metastore as a Spark source: `spark.read.format("mirror_metastore").option("view", "files")`.

The same views on PostgreSQL, SQLite and DuckDB, without a JDBC jar. Rows come as Arrow, from as
many tasks as `slices` says, each over its own connection; what makes them one picture is the
version of each table, fixed when the read is planned. Filters on single columns are answered by
SQL. Spark does not tell a Python source which columns it needs: name them in `columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from mirror_assets.errors import ConfigurationError
from mirror_assets.metastore.views import Condition, Slice, View, plan_slices, view_of
from mirror_assets.pipeline.access import Access

FORMAT: Final = "mirror_metastore"
_PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
_DEFAULT_SLICES: Final = 4
_TESTS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
    IsNull: "null",
    IsNotNull: "notnull",
    StringStartsWith: "prefix",
}


def register_metastore(spark: SparkSession, access: Access) -> None:
    """Make `mirror_metastore` known to the session.

    Options: `view` (tables, commits, history, files, partitions, mirror_status, lag), `table`,
    `version`, `columns` (names with commas), `slices`.
    """
    spark.conf.set(_PUSH_DOWN, "true")
    source = type("MirrorMetastore", (MetastoreSource,), {"access": access})
    spark.dataSource.register(source)


class MetastoreSource(DataSource):
    """The source without a metastore; `register_metastore` gives it one."""

    access: ClassVar[Access]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        kinds = self._view.kinds
        return ", ".join(f"`{name}` {kinds[name]}" for name in self._columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.access, self._view.name, schema.names, dict(self.options))

    @property
    def _view(self) -> View:
        return view_of(self.options.get("view", "tables"))

    @property
    def _columns(self) -> list[str]:
        kinds = self._view.kinds
        text = self.options.get("columns")
        wanted = list(kinds) if text is None else [name.strip() for name in text.split(",")]
        if unknown := [name for name in wanted if name not in kinds]:
            message = f"the view {self._view.name} has no column {unknown[0]!r}"
            raise ConfigurationError(message, remedy=f"it has: {', '.join(kinds)}")
        return wanted


@dataclass
class _Part(InputPartition):
    slices: Sequence[Slice]

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(None)
        self.slices = slices


class _Reader(DataSourceReader):
    def __init__(
        self, access: Access, view: str, columns: Sequence[str], options: dict[str, Any]
    ) -> None:
        self._access = access
        self._view = view
        self._columns = list(columns)
        self._options = options
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take what SQL can answer; give the rest back."""
        kinds = view_of(self._view).kinds
        for each in filters:
            test = _TESTS.get(type(each))
            path: tuple[str, ...] = getattr(each, "attribute", ())
            if test is None or len(path) != 1 or path[0] not in kinds:
                yield each
                continue
            value = getattr(each, "value", None)
            self._conditions.append(Condition(column=path[0], test=test, value=value))

    def partitions(self) -> Sequence[InputPartition]:
        groups = plan_slices(
            self._access.metastore(),
            table=self._options.get("table"),
            version=self._number("version", at_least=0),
            count=self._number("slices", at_least=1) or _DEFAULT_SLICES,
        )
        return [_Part(group) for group in groups] or [_Part(())]

    def _number(self, option: str, *, at_least: int) -> int | None:
        text = self._options.get(option)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < at_least:
            message = f"the option {option} is {text!r}, and no whole number from {at_least} on"
            raise ConfigurationError(message)
        return int(text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task, over a connection of its own."""
        slices = partition.slices if isinstance(partition, _Part) else ()
        view = view_of(self._view)
        metastore = self._access.metastore()
        yield from view.read(metastore, self._columns, self._conditions, slices)
