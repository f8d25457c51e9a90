"""Spark: DataFrames written, checkpoints and backfills as jobs, against Delta Spark and in process.

CPU is that of all processes: this one, the JVM and its Python workers. One session serves all
contenders, the first round warms it up, and the calmest of the others counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_source
from benchmarks.bench import Bench
from benchmarks.reporting import Result
from benchmarks.samples import PARTITION_COLUMNS, SCHEMA, a_metastore, adds, write_log
from benchmarks.spark_measuring import measured, ratio, turns
from mirror_assets.delta.features import protocol_with
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.registry import create_table
from mirror_assets.mirror.bulk.checkpoints import build_checkpoint
from mirror_assets.mirror.bulk.logs import backfill
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.session import SparkOptions, open_session, settings_of
from mirror_assets.pipeline.table_writer import NewTable, write_table
from mirror_assets.pipeline.work import Workers
from mirror_assets.storage.log_source import open_log

_PACKAGES: Final = "spark.jars.packages"


def run(bench: Bench) -> Iterator[Result]:
    """Writing, then checkpoints, a backfill, and the metastore as a source, in one session."""
    memory = "1g" if bench.quick else "3g"
    options = SparkOptions(master="local[2]", delta=True, memory=memory)
    packages = ",".join((settings_of(options)[_PACKAGES], *spark_source.JDBC_PACKAGES))
    spark = open_session(replace(options, conf={_PACKAGES: packages}))
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield from _writing(bench, spark)
        yield from _checkpoints(bench, spark)
        yield from _backfill(bench, spark)
        yield from spark_source.run(bench, spark)
    finally:
        spark.stop()


def _writing(bench: Bench, spark: SparkSession) -> Iterator[Result]:
    rows = bench.of(5_000_000, 20_000)
    frame = spark.range(0, rows, 1, 4).selectExpr(
        "id", "concat('p', id % 20) as p", "cast(id * 0.37 as double) as x"
    )
    places = {"ours": bench.path("ours"), "delta": bench.path("delta")}
    url = bench.url("sqlite")
    a_metastore(url).close()
    access = Access.to(url)

    def ours(number: int) -> None:
        place = places["ours"] / str(number)
        new = NewTable(location=str(place), partition_by=["p"])
        write_table(frame, f"bench.w{number}", access=access, create=new)

    def delta(number: int) -> None:
        by_delta(frame, places["delta"] / str(number))

    mine, peer = turns(bench.of(4, 1), ours, delta)
    what = f"DataFrame of {rows:,} rows in 20 partitions, written and committed, "
    yield ratio("31", f"{what}CPU", mine.cpu, ("Delta Spark's write", peer.cpu), 1.1)
    yield ratio("31", f"{what}wall", mine.wall, ("Delta Spark's write", peer.wall), None)
    sizes = [_data_bytes(places[name]) / 1e6 for name in ("ours", "delta")]
    yield Result(
        goal="31",
        what=f"{what}data files",
        unit="MB",
        ours=sizes[0],
        against="Delta Spark's write",
        theirs=sizes[1],
        bound=1.05,
    )


def by_delta(frame: DataFrame, place: Path) -> None:
    """The peer."""
    frame.write.format("delta").partitionBy("p").save(str(place))


def _checkpoints(bench: Bench, spark: SparkSession) -> Iterator[Result]:
    files = bench.of(1_000_000, 2_000)
    url, workers = bench.url("postgresql"), Workers(spark)
    metastore = a_metastore(url)
    access = Access.to(url)
    log = write_log(bench.path("log"), files)
    for name, bound in (("classic", 1 / 10), ("v2", 1 / 15)):
        root, peer_root = bench.path(name), bench.path(f"{name}-peer")
        shutil.copytree(log, root)
        table = _taken_over(metastore, f"bench.{name}", root, v2=name == "v2")
        shutil.copytree(root, peer_root)
        mine = measured(lambda table=table: build_checkpoint(workers, access, table))
        peer = measured(lambda root=peer_root: _delta_checkpoint(spark, root))
        what = f"{name} checkpoint of {files:,} files by Spark tasks, Postgres, CPU"
        yield ratio("32", what, mine.cpu, ("Delta Spark's checkpoint()", peer.cpu), bound)
    metastore.close()


def _delta_checkpoint(spark: SparkSession, root: Path) -> None:
    delta: Any = spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001 - there is no other door
    delta.DeltaLog.forTable(spark._jsparkSession, str(root)).checkpoint()  # noqa: SLF001 - the same


def _taken_over(metastore: Metastore, name: str, root: Path, *, v2: bool) -> str:
    import_table(metastore, open_log(str(root)), name)
    if v2:
        protocol = LogReader(metastore).summary(name).protocol
        SqlTxnLogWriter(metastore).commit(name, [protocol_with(protocol, {"v2Checkpoint"})])
        Mirror(metastore).settle([name], patience_s=600)
    return name


def _backfill(bench: Bench, spark: SparkSession) -> Iterator[Result]:
    tables, versions = bench.of(200, 6), bench.of(50, 3)
    url, workers = bench.url("postgresql"), Workers(spark)
    metastore = a_metastore(url)
    access = Access.to(url)
    writer = SqlTxnLogWriter(metastore)
    names: dict[str, list[str]] = {"spark": [], "own": []}
    for kind, listed in names.items():
        for number in range(tables):
            name = f"{kind}.t{number}"
            place = bench.path(name)
            create_table(metastore, name, str(place), SCHEMA, partition_columns=PARTITION_COLUMNS)
            for version in range(versions - 1):
                writer.commit(name, adds(1, version))
            listed.append(name)
    # the first job of a session pays for what its Python workers import
    workers.run([0, 1], lambda number: {"warm": f"{backfill.__name__} {number}"})
    mine = measured(lambda: backfill(workers, access, names["spark"]))
    peer = measured(lambda: Mirror(metastore).settle(names["own"], patience_s=600))
    what = f"backfill of {tables} tables x {versions} versions by Spark, Postgres, CPU"
    yield ratio("33", what, mine.cpu, ("the in-process engine", peer.cpu), 1.5)
    metastore.close()


def _data_bytes(root: Path) -> int:
    return sum(f.stat().st_size for f in root.rglob("part-*.parquet"))
