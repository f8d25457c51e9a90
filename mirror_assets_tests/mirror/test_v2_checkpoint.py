"""V2 checkpoints: sidecars that nothing changed in are named again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_assets.delta import sidecar_plan
from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.last_checkpoint import CheckpointHint, parse_last_checkpoint
from mirror_assets.delta.log_paths import LastCheckpoint, V2Checkpoint
from mirror_assets.delta.table_properties import DAY_MS
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.checkpoint_audit import read_sidecars
from mirror_assets_tests.builders import add, changed
from mirror_assets_tests.delta.samples import a_field
from mirror_assets_tests.mirror.lake import NOW_MS, removal

if TYPE_CHECKING:
    from mirror_assets.mirror.checkpointer import PublishedCheckpoint
    from mirror_assets_tests.mirror.lake import Lake


@pytest.fixture
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", 4)


@pytest.fixture
def v2_lake(lake: Lake, small_sidecars: None) -> Lake:
    lake.create(a_field("id"), features=("v2Checkpoint",))
    return lake


def ids(first: int) -> pa.Table:
    return pa.table({"id": pa.array([first], pa.int64())})


def sidecars(lake: Lake, published: PublishedCheckpoint) -> list[str]:
    return [sidecar.path for sidecar in read_sidecars(lake.store, published.name)]


def counts(published: PublishedCheckpoint) -> tuple[int, int]:
    return published.sidecars_written, published.sidecars_kept


def test_later_checkpoints_name_unchanged_sidecars_again(v2_lake: Lake) -> None:
    lake = v2_lake
    files = [lake.file(ids(number)) for number in range(14)]
    for start in (0, 4, 8):
        version = lake.commit(*files[start : start + 4])
    first = lake.checkpoint(version)
    assert counts(first) == (3, 0)

    second = lake.checkpoint(lake.commit(files[12]))
    version = lake.commit(removal(files[5]), files[13])
    third = lake.checkpoint(version)

    assert counts(second) == (1, 3)
    assert set(sidecars(lake, first)) <= set(sidecars(lake, second))
    assert sidecars(lake, third)[0] == sidecars(lake, first)[0]
    assert sidecars(lake, first)[1] not in sidecars(lake, third)
    lake.forget_commits_before(version)
    assert lake.rows() == sorted(((n,) for n in range(14) if n != 5), key=repr)
    assert lake.listed_paths() == lake.live_paths()
    assert third.content.removes == 1


def test_the_top_level_file_and_the_pointer_name_what_trino_and_spark_need(v2_lake: Lake) -> None:
    lake = v2_lake
    published = lake.checkpoint(lake.commit(*(add(f"{n}.parquet") for n in range(9))))

    assert isinstance(published.name, V2Checkpoint)
    top = lake.log / published.name.name
    assert pq.ParquetFile(top).schema_arrow.equals(checkpoint_schema(v2=True))
    rows = [row for row in pq.read_table(top).to_pylist() if row["checkpointMetadata"]]
    assert [row["checkpointMetadata"]["version"] for row in rows] == [published.version]
    names = read_sidecars(lake.store, published.name)
    total = top.stat().st_size
    for sidecar in names:
        file = lake.log / "_sidecars" / sidecar.path
        assert file.stat().st_size == sidecar.size_in_bytes
        assert pq.ParquetFile(file).schema_arrow.names == ["add", "remove"]
        total += sidecar.size_in_bytes
    hint = parse_last_checkpoint(lake.store.read(LastCheckpoint()) or b"")
    assert isinstance(hint, CheckpointHint)
    assert hint.v2_checkpoint == {
        "path": published.name.name,
        "sizeInBytes": top.stat().st_size,
        "modificationTime": NOW_MS,
    }
    assert (hint.size_in_bytes, hint.num_of_add_files) == (total, 9)
    assert hint.size == 9 + len(names) + 3
    assert not list(lake.log.glob("*.checkpoint.parquet"))


def test_a_sidecar_that_vanished_is_written_anew(v2_lake: Lake) -> None:
    lake = v2_lake
    first = lake.checkpoint(lake.commit(*(add(f"{n}.parquet") for n in range(8))))
    (lake.log / "_sidecars" / sidecars(lake, first)[0]).unlink()

    second = lake.checkpoint(lake.commit(add("more.parquet")))

    assert second.sidecars_kept == 0
    assert second.content.adds == 9


def test_other_columns_mean_other_sidecars(v2_lake: Lake) -> None:
    lake = v2_lake
    lake.checkpoint(lake.commit(*(add(f"{n}.parquet") for n in range(8))))
    metadata = LogReader(lake.metastore).summary(lake.name).metadata
    as_struct = {"delta.checkpoint.writeStatsAsStruct": "true"}

    second = lake.checkpoint(lake.commit(changed(metadata, **as_struct)))

    assert second.sidecars_kept == 0


def test_tombstones_that_stand_are_named_again_and_expired_ones_go(v2_lake: Lake) -> None:
    lake = v2_lake
    adds = [add(f"{n}.parquet") for n in range(12)]
    lake.commit(*adds)
    version = lake.commit(*(removal(a, NOW_MS - DAY_MS) for a in adds[:4]))
    assert lake.checkpoint(version).content.removes == 4

    more = lake.checkpoint(lake.commit(*(removal(a, NOW_MS) for a in adds[4:8])))
    later = lake.checkpoint(lake.commit(add("more.parquet")), now_ms=NOW_MS + 6 * DAY_MS)

    assert (more.content.removes, more.sidecars_kept > 0) == (8, True)
    assert (later.content.removes, later.content.adds) == (4, 5)


def test_a_retention_that_grew_costs_a_full_build_and_no_tombstone(v2_lake: Lake) -> None:
    lake = v2_lake
    adds = [add(f"{n}.parquet") for n in range(12)]
    lake.commit(*adds)
    lake.commit(*(removal(a, NOW_MS - 9 * DAY_MS) for a in adds[:4]))
    version = lake.commit(*(removal(a) for a in adds[4:8]))
    assert lake.checkpoint(version).content.removes == 4

    metadata = LogReader(lake.metastore).summary(lake.name).metadata
    retention = {"delta.deletedFileRetentionDuration": "interval 30 days"}
    grown = lake.checkpoint(lake.commit(changed(metadata, **retention)))

    assert grown.content.removes == 8


def test_a_table_without_files_has_a_checkpoint_without_sidecars(v2_lake: Lake) -> None:
    lake = v2_lake
    lake.mirror()

    published = lake.checkpoint(0)

    assert counts(published) == (0, 0)
    assert lake.rows() == []
