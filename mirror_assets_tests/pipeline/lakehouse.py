"""Tables that Spark writes, the mirror that publishes them, and three readers that judge them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.table_writer import NewTable, write_table
from mirror_assets_tests.builders import a_metastore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.pipeline.table_writer import Written

TABLE = "sales.orders"


@dataclass
class Lakehouse:
    spark: SparkSession
    root: Path
    access: Access
    metastore: Metastore

    def place(self, table: str = TABLE) -> Path:
        return self.root / table.replace(".", "/")

    def write(self, frame: DataFrame, table: str = TABLE, **options: Any) -> Written:
        partition_by = options.pop("partition_by", ())
        properties = options.pop("properties", {})
        options.setdefault(
            "create",
            NewTable(
                location=str(self.place(table)), partition_by=partition_by, properties=properties
            ),
        )
        return write_table(frame, table, access=self.access, **options)

    def mirror(self) -> None:
        """Publish all that is pending."""
        for result in Mirror(self.metastore).settle(patience_s=60):
            assert result.failure is None, result.failure

    @property
    def reader(self) -> LogReader:
        return LogReader(self.metastore)

    def statistics(self, table: str = TABLE) -> list[dict[str, Any]]:
        return [json.loads(add.stats or "{}") for add in self.reader.live_files(table)]

    def info(self, table: str = TABLE) -> dict[str, Any]:
        """The commitInfo of the newest version."""
        return json.loads(self.reader.history(table, 1)[0]["commit_info"])

    def orphans(self, table: str = TABLE) -> set[str]:
        """Data files on disk that no live add names."""
        live = {unquote(add.path) for add in self.reader.live_files(table)}
        root = self.place(table)
        found = {f.relative_to(root).as_posix() for f in root.rglob("*.parquet")}
        return {name for name in found if not name.startswith("_delta_log") and name not in live}


@contextmanager
def a_lakehouse(spark: SparkSession, root: Path, url: str) -> Iterator[Lakehouse]:
    with a_metastore(url) as metastore:
        yield Lakehouse(spark, root / "lake", Access.to(url), metastore)


def by_deltalake(place: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    query = QueryBuilder().register("t", DeltaTable(str(place)))
    return _rows(pa.table(query.execute(f"select {columns} from t").read_all()))


def by_duckdb(place: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        return _rows(
            connection.sql(f"select {columns} from delta_scan('{place}')").to_arrow_table()
        )


def by_spark(spark: SparkSession, place: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    frame = spark.read.format("delta").load(str(place)).selectExpr(*columns.split(", "))
    return _rows(frame.toArrow())


def by_all(spark: SparkSession, place: Path, columns: str = "*") -> list[list[tuple[Any, ...]]]:
    return [
        by_deltalake(place, columns),
        by_duckdb(place, columns),
        by_spark(spark, place, columns),
    ]


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    names = sorted(table.column_names)
    return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=repr)
