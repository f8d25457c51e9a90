"""A DataFrame in 20 partitions, written, committed and mirrored, beside Delta Spark's own write.

Three readers find the rows that went in, and open as many files as they open of the table that
Delta Spark wrote of the same rows. MIRROR_TEST_ROWS=100000 is a quicker look.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.table_writer import NewTable, write_table
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.acceptance.readers import (
    duckdb_connection,
    object_store_options,
    s3a_options,
)
from mirror_assets_tests.builders import a_metastore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from mirror_assets_tests.store_services import S3Server

ROWS = int(os.environ.get("MIRROR_TEST_ROWS", "5000000"))
PARTITIONS, TASKS = 20, 4
FILES = PARTITIONS * TASKS
#: each leaves out some files by their statistics, by their partitions, or by both
PREDICATES = [
    f"id < {ROWS // 10}",
    f"id = {ROWS // 2 + 7}",
    f"x > {ROWS * 0.37 * 0.8}",
    f"id >= {ROWS // 3} and id < {ROWS // 3 + 5} and p = 'p7'",
    "p in ('p1', 'p 2')",
    f"s < 'row {TASKS // 2}'",
    f"id > {ROWS}",
]
HASH = "select count(*), sum(hash(id, p::varchar, x, s::varchar)::hugeint)::varchar from"


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_three_readers_find_the_rows_and_skip_the_files_that_they_skip_of_delta_spark(
    where: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    s3 = request.getfixturevalue("seaweedfs") if where == "s3" else None
    root = str(tmp_path) if s3 is None else f"s3://{s3.bucket}/{tmp_path.name}"
    for name, value in s3a_options(s3).items():
        spark.conf.set(name, value)
    frame = a_frame(spark)
    ours, peer = f"{root}/ours", f"{root}/peer"
    _write_and_mirror(frame, ours, f"sqlite:///{tmp_path / 'metastore.db'}", s3)
    frame.write.format("delta").partitionBy("p").save(_s3a(peer))

    expected = _of_spark(frame, tmp_path / "expected")
    assert expected[0] == ROWS
    found = spark.read.format("delta").load(_s3a(ours))
    assert _of_spark(found, tmp_path / "found") == expected
    assert _of_deltalake(ours, s3) == expected
    with duckdb_connection(s3) as connection:
        assert connection.sql(f"{HASH} delta_scan('{ours}')").fetchall() == [expected]

        def read_by(kind: str, place: str, predicate: str) -> int:
            match kind:
                case "spark":
                    return _files_of_spark(spark, place, predicate)
                case "duckdb":
                    return _files_of_duckdb(connection, place, predicate)
            return _files_of_deltalake(place, predicate, s3)

        # the statistics are the same on both stores
        asked = PREDICATES if s3 is None else PREDICATES[:4]
        for kind in ("spark", "duckdb", "deltalake"):
            read = {p: read_by(kind, ours, p) for p in asked}
            assert read == {p: read_by(kind, peer, p) for p in asked}, kind
            # what the others make of statistics of strings is theirs
            assert kind != "spark" or max(read.values()) < FILES, read
            assert read[PREDICATES[0]] == PARTITIONS, kind
            assert read[PREDICATES[3]] == 1, kind


def a_frame(spark: SparkSession) -> DataFrame:
    """Each of its tasks has a range of ids, and rows of every partition."""
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        "id",
        f"concat('p', case when id % {PARTITIONS} = 2 then ' ' else '' end, id % {PARTITIONS}) p",
        "cast(id * 0.37 as double) x",
        f"case when id % 11 > 0 then concat('row ', id div {ROWS // TASKS}, ' ', id) end s",
    )


def _write_and_mirror(frame: DataFrame, place: str, url: str, s3: S3Server | None) -> None:
    def options() -> StoreOptions:
        return s3.options() if s3 else StoreOptions()

    access = Access(metastore_url=Access.to(url).metastore_url, store_options=options)
    with a_metastore(url) as metastore:
        new = NewTable(location=place, partition_by=["p"])
        written = write_table(frame, "sales.orders", access=access, create=new)
        assert (written.rows, written.files) == (ROWS, FILES)
        mirror = Mirror(metastore, options=options())
        assert [result.failure for result in mirror.settle(patience_s=60)] == [None]


def _of_spark(frame: DataFrame, scratch: Path) -> tuple[int, str]:
    """What Spark read, hashed by the same hand as what the others read."""
    frame.write.parquet(str(scratch))
    with duckdb.connect() as connection:
        return connection.sql(f"{HASH} '{scratch}/*.parquet'").fetchall()[0]


def _of_deltalake(place: str, s3: S3Server | None) -> tuple[int, str]:
    table = DeltaTable(place, storage_options=object_store_options(s3))
    rows = pa.table(QueryBuilder().register("t", table).execute("select * from t").read_all())
    with duckdb.connect() as connection:
        return connection.register("rows", rows).sql(f"{HASH} rows").fetchall()[0]


def _files_of_spark(spark: SparkSession, place: str, predicate: str) -> int:
    frame = spark.read.format("delta").load(_s3a(place)).where(predicate)
    return len(frame.inputFiles())


def _files_of_duckdb(connection: duckdb.DuckDBPyConnection, place: str, predicate: str) -> int:
    query = f"explain analyze select * from delta_scan('{place}') where {predicate}"
    plan = connection.sql(query).fetchall()[0][1]
    found = re.search(r"Scanning Files: (\d+)/(\d+)", plan)
    return int(found[1]) if found else 0


def _files_of_deltalake(place: str, predicate: str, s3: S3Server | None) -> int:
    table = DeltaTable(place, storage_options=object_store_options(s3))
    query = QueryBuilder().register("t", table)
    # else a file is opened once for each of its pieces
    query.execute("set datafusion.optimizer.repartition_file_scans = false").read_all()
    plan = query.execute(f"explain analyze select * from t where {predicate}").read_all()
    text = pa.table(plan).to_pylist()[0]["plan"]
    return sum(int(n) for n in re.findall(r"files_opened=(\d+)", text))


def _s3a(place: str) -> str:
    return place.replace("s3://", "s3a://")
