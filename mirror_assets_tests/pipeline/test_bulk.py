"""Bulk jobs on Spark: what they leave behind is what the in-process engine leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from mirror_assets.delta import sidecar_plan
from mirror_assets.errors import SparkJobError, TableStateError
from mirror_assets.metastore.registry import create_table
from mirror_assets.mirror.bulk.checkpoints import build_checkpoint, build_checkpoints
from mirror_assets.mirror.bulk.logs import backfill, compare_states, rebuild_logs
from mirror_assets.mirror.rebuild import rebuild
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.work import Workers, run_items
from mirror_assets_tests.builders import a_metastore, add, commit, remove
from mirror_assets_tests.delta.samples import a_field, a_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_assets.metastore.database import Metastore


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")()
    return f"{request.param}:///{tmp_path / 'metastore.db'}"


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    with a_metastore(url) as opened:
        yield opened


def a_table(metastore: Metastore, root: Path, name: str, versions: int, *features: str) -> str:
    create_table(
        metastore,
        name,
        str(root / name),
        a_schema(a_field("id")),
        configuration={f"delta.feature.{feature}": "supported" for feature in features},
    )
    for number in range(versions):
        commit(metastore, name, *(add(f"{number}-{n}.parquet", size=n) for n in range(10)))
    commit(metastore, name, remove("0-1.parquet", deletion_timestamp=4_000_000_000_000))
    return name


def log_of(root: Path, pattern: str = "*.json") -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in sorted((root / "_delta_log").glob(pattern))}


def actions_in(root: Path) -> list[str]:
    """The file actions of the newest checkpoint, decoded, however it is cut."""
    log = root / "_delta_log"
    files = [*log.glob("*.checkpoint*.parquet"), *log.glob("_sidecars/*.parquet")]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(
        repr({k: v for k, v in row.items() if v is not None and k in ("add", "remove", "protocol")})
        for row in rows
        if row.get("sidecar") is None and row.get("checkpointMetadata") is None
    )


def test_spark_publishes_rebuilds_and_checkpoints_as_this_process_does(
    spark: SparkSession,
    metastore: Metastore,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", 7)
    workers, access = Workers(spark), Access.to(url)
    classic = a_table(metastore, tmp_path, "db.classic", 3)
    v2 = a_table(metastore, tmp_path, "db.v2", 3, "v2Checkpoint")

    assert backfill(workers, access) == {classic: 5, v2: 5}
    assert backfill(workers, access) == {}

    places = {name: str(tmp_path / "again" / name) for name in (classic, v2)}
    built = rebuild_logs(workers, access, places)
    assert {name: done.commits for name, done in built.items()} == {classic: 5, v2: 5}
    for name in (classic, v2):
        own = tmp_path / "own" / name
        rebuild(metastore, name, access.log_store(str(own)))
        assert log_of(tmp_path / name) == log_of(tmp_path / "again" / name) == log_of(own)

        done = build_checkpoint(workers, access, name)
        assert done.is_new
        assert (done.version, done.actions) == (
            4,
            Mirror(metastore).checkpoints.build(name).actions,
        )
        assert actions_in(tmp_path / name) == actions_in(own)
    assert len(list((tmp_path / v2 / "_delta_log" / "_sidecars").iterdir())) > 2
    assert compare_states(workers, access) == {classic: [], v2: []}


def test_a_planted_difference_is_found(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    with a_metastore(url) as metastore:
        workers, access = Workers(spark), Access.to(url)
        names = [a_table(metastore, tmp_path, f"db.t{n}", 1) for n in range(3)]
        backfill(workers, access)
        file = tmp_path / names[1] / "_delta_log" / f"{1:020d}.json"
        file.write_text(file.read_text().replace("0-7.parquet", "0-77.parquet"))
        found = compare_states(workers, access)
        assert [name for name, findings in found.items() if findings] == [names[1]]
        assert any("0-7" in finding.message for finding in found[names[1]])

        with pytest.raises(TableStateError, match="is not published") as refused:
            build_checkpoints(workers, access, [(names[0], None), (names[2], 9)])
        assert refused.value.table == names[2]


def test_a_task_may_fail_twice_and_an_item_is_answered_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def clumsy(number: int) -> dict[str, Any]:
        tries = tmp_path / f"tries-{number}"
        with tries.open("a") as file:
            file.write("x")
        if number == 1 and len(tries.read_text()) < 3:
            raise OSError("a disk was full")
        return {"number": number * 10}

    assert run_items(spark, [0, 1, 2], clumsy) == [{"number": n} for n in (0, 10, 20)]
    assert (tmp_path / "tries-1").read_text() == "xxx"

    def hopeless(number: int) -> dict[str, Any]:
        raise OSError(f"no disk {number}")

    with pytest.raises(SparkJobError, match="no disk"):
        run_items(spark, [1], hopeless)
    assert run_items(spark, [], hopeless) == []
