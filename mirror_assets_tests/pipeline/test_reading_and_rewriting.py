"""Rows read by way of SQL, deleted, changed, put together; files that a vacuum may take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from mirror_assets.errors import UnsupportedTableError, WriteRefusedError
from mirror_assets.metastore.outcomes import Conflict
from mirror_assets.pipeline import rewriting
from mirror_assets.pipeline.metastore_source import FORMAT, register_metastore
from mirror_assets.pipeline.rewriting import delete_rows, optimize, update_rows
from mirror_assets.pipeline.table_reader import read_table
from mirror_assets.pipeline.vacuum import vacuum
from mirror_assets_tests.delta.samples import a_field
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.pipeline.lakehouse import TABLE, a_lakehouse, by_all, by_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from mirror_assets_tests.pipeline.lakehouse import Lakehouse


def orders(lakehouse: Lakehouse, *ids: int) -> DataFrame:
    rows = [(number, f"p:{number % 2}", number * 10) for number in ids]
    return lakehouse.spark.createDataFrame(rows, "id long, p string, v int").coalesce(1)


def ids(lakehouse: Lakehouse, **at: Any) -> list[int]:
    frame = read_table(lakehouse.spark, TABLE, access=lakehouse.access, **at)
    return sorted(row["id"] for row in frame.collect())


def test_a_writer_reads_its_own_commit_and_every_version_before_it_is_mirrored(
    lakehouse: Lakehouse,
) -> None:
    lakehouse.write(orders(lakehouse, 1, 2), partition_by=["p"])
    between = datetime.fromtimestamp(lakehouse.reader.table(TABLE).head_timestamp_ms / 1000, UTC)
    lakehouse.write(orders(lakehouse, 3))

    frame = read_table(lakehouse.spark, TABLE, access=lakehouse.access)
    rows = sorted((row["id"], row["p"], row["v"]) for row in frame.collect())
    assert rows == [(1, "p:1", 10), (2, "p:0", 20), (3, "p:1", 30)]
    assert frame.columns == ["id", "p", "v"]
    assert ids(lakehouse, version=1) == [1, 2]
    assert ids(lakehouse, version=0) == []
    assert ids(lakehouse, timestamp=between + timedelta(milliseconds=1)) in ([1, 2], [1, 2, 3])
    assert not (lakehouse.place() / "_delta_log").exists()


def test_deleted_and_updated_rows_are_gone_and_changed_for_every_reader(
    lakehouse: Lakehouse,
) -> None:
    spark, access = lakehouse.spark, lakehouse.access
    lakehouse.write(orders(lakehouse, *range(10)), partition_by=["p"])

    gone = delete_rows(spark, TABLE, "id in (2, 3) or v is null", access=access)
    assert (gone.removed_files, gone.rows) == (2, 8)
    assert lakehouse.info()["operationMetrics"]["numDeletedRows"] == "2"
    update_rows(spark, TABLE, "id = 5", {"v": "v + 1", "p": "'moved'"}, access=access)
    assert lakehouse.info()["operationMetrics"]["numUpdatedRows"] == "1"
    dropped = delete_rows(spark, TABLE, "p = 'p:0'", access=access)
    assert (dropped.files, dropped.removed_files) == (0, 1)
    lakehouse.mirror()

    expected = sorted([(1, "p:1", 10), (5, "moved", 51), (7, "p:1", 70), (9, "p:1", 90)], key=repr)
    for seen in by_all(spark, lakehouse.place()):
        assert seen == expected
    assert delete_rows(spark, TABLE, "id = 99", access=access).outcome is None
    with pytest.raises(WriteRefusedError, match="no condition on the table's columns"):
        delete_rows(spark, TABLE, "nothing = 1", access=access)
    with pytest.raises(WriteRefusedError, match="'w' is no column"):
        update_rows(spark, TABLE, "id = 1", {"w": "1"}, access=access)


def test_a_delete_that_did_not_see_an_append_loses(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse.write(orders(lakehouse, 1, 2))
    original = rewriting.write_files

    def raced(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        lakehouse.write(orders(lakehouse, 3))
        return done

    monkeypatch.setattr(rewriting, "write_files", raced)
    lost = delete_rows(lakehouse.spark, TABLE, "id = 1", access=lakehouse.access)
    assert isinstance(lost.outcome, Conflict)
    assert ids(lakehouse) == [1, 2, 3]
    assert lost.orphans is not None


def test_small_files_are_put_together_beside_appends_and_no_row_changes(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse.write(orders(lakehouse, 1, 2), partition_by=["p"])
    lakehouse.write(orders(lakehouse, 3, 4))
    original = rewriting.write_files

    def beside(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        lakehouse.write(orders(lakehouse, 5))
        return done

    monkeypatch.setattr(rewriting, "write_files", beside)
    done = optimize(lakehouse.spark, TABLE, access=lakehouse.access)
    assert (done.files, done.removed_files) == (2, 4)
    lakehouse.mirror()
    assert [row[0] for row in by_deltalake(lakehouse.place())] == [1, 2, 3, 4, 5]
    assert lakehouse.info()["operation"] == "OPTIMIZE"
    actions = next(lakehouse.reader.commits(TABLE, 4, 4)).actions
    assert {a.data_change for a in actions if hasattr(a, "data_change")} == {False}


def test_a_vacuum_takes_only_what_no_reader_and_no_writer_can_need(lakehouse: Lakehouse) -> None:
    lakehouse.write(orders(lakehouse, 1))
    lakehouse.mirror()
    lakehouse.write(orders(lakehouse, 2), mode="overwrite")
    orphan = lakehouse.place() / "lost" / "part-0.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"PAR1")
    hidden = lakehouse.place() / "_work" / "x.parquet"
    hidden.parent.mkdir()
    hidden.write_bytes(b"PAR1")

    later = int(datetime.now(UTC).timestamp() * 1000) + 8 * 86_400_000
    access = lakehouse.access
    # the log still shows version 1: its file is needed, though SQL removed it long ago
    plan = vacuum(TABLE, access=access, now_ms=later)
    assert [file.path for file in plan.delete] == ["lost/part-0.parquet"]
    assert by_deltalake(lakehouse.place(), "id") == [(1,)]

    lakehouse.mirror()
    assert vacuum(TABLE, access=access).delete == ()
    assert vacuum(TABLE, access=access).young_files == 1
    assert len(vacuum(TABLE, access=access, now_ms=later).delete) == 2
    assert orphan.exists()
    with pytest.raises(WriteRefusedError, match="files are kept for"):
        vacuum(TABLE, access=access, retain_ms=1)

    done = vacuum(TABLE, access=access, now_ms=later, apply=True)
    assert done.applied
    assert not orphan.exists()
    assert hidden.exists()
    assert by_deltalake(lakehouse.place(), "id") == [(2,)]
    assert ids(lakehouse) == [2]


def test_deletion_vectors_are_refused_and_not_ignored(lakehouse: Lakehouse) -> None:
    lake = Lake(lakehouse.metastore, lakehouse.place("sales.holed"), name="sales.holed")
    features = ("deletionVectors",)
    lake.create(a_field("id"), features=features)
    file = lake.file(pa.table({"id": [1, 2]}))
    lake.commit(msgspec.structs.replace(file, deletion_vector=lake.delete_rows([0])))
    with pytest.raises(UnsupportedTableError, match="deletion vectors"):
        read_table(lakehouse.spark, "sales.holed", access=lakehouse.access)


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgresql"])
def test_the_metastore_is_a_spark_source_on_every_engine(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    url = f"{engine}:///{tmp_path / 'metastore.db'}"
    if engine == "postgresql":
        url = request.getfixturevalue("postgres_url")()
    with a_lakehouse(spark, tmp_path, url) as lakehouse:
        for number in range(3):
            lakehouse.write(orders(lakehouse, number, number + 10), partition_by=["p"])
        register_metastore(spark, lakehouse.access)

        files = spark.read.format(FORMAT).option("view", "files").option("table", TABLE)
        assert files.load().count() == 3
        assert files.option("version", 1).load().select("path").count() == 1
        commits = spark.read.format(FORMAT).options(view="commits", columns="version,operation")
        late = commits.load().where("version >= 2 and operation = 'WRITE'")
        assert sorted(row["version"] for row in late.collect()) == [2, 3]
        lag = spark.read.format(FORMAT).option("view", "lag").load().collect()[0]
        assert (lag["table"], lag["lag_versions"]) == (TABLE, 4)
        for wrong, text in [
            ({"table": "sales.order"}, "no table of this name"),
            ({"version": "9"}, "give one of the versions 0 to 3"),
            ({"slices": "some"}, "no whole number from 1 on"),
        ]:
            asked = {"view": "files", "table": TABLE, **wrong}
            with pytest.raises(AnalysisException, match=text):
                spark.read.format(FORMAT).options(**asked).load().count()
