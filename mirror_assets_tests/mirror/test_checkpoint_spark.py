"""Checkpoints judged by the reference reader, Delta Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from mirror_assets.delta import sidecar_plan
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.checkpointer import publish_version_checksum
from mirror_assets_tests.builders import a_metastore, txn
from mirror_assets_tests.delta.samples import a_domain, a_field
from mirror_assets_tests.mirror.lake import NOW_MS, Lake, removal

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STRUCT = {
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
}


def rows(spark: SparkSession, lake: Lake) -> list[tuple[object, ...]]:
    frame = spark.read.format("delta").load(str(lake.root))
    found = (tuple(row[name] for name in sorted(frame.columns)) for row in frame.collect())
    return sorted(found, key=repr)


@pytest.mark.parametrize("v2", [False, True], ids=["classic", "v2"])
@pytest.mark.parametrize("stats", [{}, STRUCT], ids=["json", "struct"])
def test_delta_spark_reads_the_same_rows_from_the_checkpoint_alone(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    v2: bool,
    stats: dict[str, str],
) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", 4)
    wanted = ("deletionVectors", "domainMetadata", *(["v2Checkpoint"] if v2 else []))
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        lake = Lake(metastore, tmp_path / "table")
        lake.create(
            a_field("id"),
            a_field("p", "string"),
            partition_columns=["p"],
            features=wanted,
            configuration={"delta.enableDeletionVectors": "true", **stats},
        )
        values = ["plain", "with blank", 'quo"te', "emoji 😀", None, "ü=%/:", "a", "b", "c", "d"]
        adds = [
            lake.file(pa.table({"id": pa.array([10 * n, 10 * n + 1], pa.int64())}), {"p": value})
            for n, value in enumerate(values)
        ]
        lake.commit(*adds[6:], txn("app", 1), a_domain("kept"))
        lake.checkpoint(lake.commit(*adds[:3]))
        lake.checkpoint(lake.commit(*adds[3:5]))
        holed = msgspec.structs.replace(adds[0], deletion_vector=lake.delete_rows([1]))
        version = lake.commit(removal(adds[0]), holed, removal(adds[1]), adds[5])
        publish_version_checksum(metastore, lake.store, lake.name, version)
        published = lake.checkpoint(version, now_ms=NOW_MS)
        lake.forget_commits_before(version)

        assert rows(spark, lake) == lake.rows()
        detail = spark.sql(f"describe detail delta.`{lake.root}`").collect()[0]
        summary = LogReader(metastore).summary(lake.name)
        assert (detail["numFiles"], detail["sizeInBytes"]) == (
            summary.num_files,
            summary.size_bytes,
        )
        assert not v2 or published.sidecars_kept
