"""The metastore as a Spark source, beside JDBC over the same rows in as many tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import make_url

from benchmarks.bench import Bench
from benchmarks.reporting import Result
from benchmarks.samples import a_metastore, write_log
from benchmarks.spark_measuring import ratio, turns
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.metastore_source import FORMAT, register_metastore
from mirror_assets.storage.log_source import open_log

#: what `run` needs in its session
JDBC_PACKAGES: Final = ("org.postgresql:postgresql:42.7.14", "org.xerial:sqlite-jdbc:3.54.1.0")
_COLUMNS: Final = "version, path, partition_values, size, modification_time, stats"
_TASKS: Final = 4
#: by engine, how much of JDBC's CPU we may take
_BOUNDS: Final = {"postgresql": ("Postgres", 2.2), "sqlite": ("SQLite", 1.0)}


def run(bench: Bench, spark: SparkSession) -> Iterator[Result]:
    """All live files of one table, every column that says something of a file, into nothing."""
    files = bench.of(1_000_000, 2_000)
    root = write_log(bench.path("log"), files)
    for engine, (named, bound) in _BOUNDS.items():
        url = bench.url(engine)
        _taken_over(url, root)
        ours, jdbc = _by_source(spark, url), _by_jdbc(spark, url)
        assert ours().count() == jdbc().count() == files
        mine, peer = turns(
            bench.of(3, 1), lambda _, read=ours: _drain(read()), lambda _, read=jdbc: _drain(read())
        )
        what = f"{files:,} rows of the metastore source, {named}, CPU"
        yield ratio("34", what, mine.cpu, ("Spark's JDBC", peer.cpu), bound)


def _taken_over(url: str, root: Path) -> None:
    metastore = a_metastore(url)
    import_table(metastore, open_log(str(root)), "bench.t")
    metastore.close()


def _by_source(spark: SparkSession, url: str) -> Callable[[], DataFrame]:
    register_metastore(spark, Access.to(url))
    options = {"view": "files", "table": "bench.t", "slices": str(_TASKS), "columns": _COLUMNS}
    return lambda: spark.read.format(FORMAT).options(**options).load()


def _by_jdbc(spark: SparkSession, url: str) -> Callable[[], DataFrame]:
    """The same rows at the same version; where the slices begin is told by hand."""
    metastore = a_metastore(url)
    table = LogReader(metastore).table("bench.t")
    metastore.close()
    live = f"removed_version is null or removed_version > {table.head_version}"
    query = f"select {_COLUMNS} from dl_add_files where table_id = {table.table_id} and ({live})"
    options: dict[str, Any] = {
        **_address(url),
        "dbtable": f"({query}) t",
        "partitionColumn": "version",
        "lowerBound": 1,
        "upperBound": table.head_version + 1,
        "numPartitions": _TASKS,
        "fetchsize": 10_000,
    }
    return lambda: spark.read.format("jdbc").options(**options).load()


def _address(url: str) -> dict[str, str]:
    place = make_url(url)
    if place.get_backend_name() == "sqlite":
        return {"url": f"jdbc:sqlite:{place.database}", "driver": "org.sqlite.JDBC"}
    return {
        "url": f"jdbc:postgresql://{place.host}:{place.port}/{place.database}",
        "user": place.username or "",
        "password": place.password or "",
        "driver": "org.postgresql.Driver",
    }


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
