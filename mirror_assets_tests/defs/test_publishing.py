"""Partitions that are materialized by hand or by a backfill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.tables import dl_add_files

if TYPE_CHECKING:
    from mirror_assets_tests.defs.platform import Platform


def test_a_backfill_publishes_everything_below_it_in_order(platform: Platform) -> None:
    keys = platform.table(commits=12)
    platform.add_keys(keys, 12)
    assert platform.backfill(keys, 3, 5).success
    assert platform.backfill(keys, 9, 9).success
    assert platform.files(keys) == list(range(10))
    assert platform.green(keys.commits) == list(range(10))
    assert platform.world.state(keys.table).mirrored_version == 9


def test_every_partition_has_metadata_of_its_own(platform: Platform) -> None:
    keys = platform.table(commits=4)
    platform.add_keys(keys, 4)
    assert platform.backfill(keys, 2, 4).success
    found = {version: platform.metadata(keys.commits, version) for version in range(5)}
    assert {v: m["version"] for v, m in found.items()} == {v: v for v in range(5)}
    assert len({m["sha256"] for m in found.values()}) == 5
    assert found[0]["operation"] == "CREATE TABLE"
    assert found[4]["table_files"] == 4
    assert isinstance(found[4]["lag_seconds"], float)
    assert found[4]["commit_file"].endswith("_delta_log/00000000000000000004.json")


def test_what_is_published_is_not_published_again(platform: Platform) -> None:
    keys = platform.table(commits=3)
    platform.add_keys(keys, 3)
    platform.backfill(keys, 0, 3)
    before = [file.mtime_ms for file in platform.world.store(keys.table).list().commits.values()]
    fences = platform.world.fence()
    assert platform.backfill(keys, 1, 2).success
    after = [file.mtime_ms for file in platform.world.store(keys.table).list().commits.values()]
    assert (before, fences) == (after, platform.world.fence())


def test_a_version_that_sql_does_not_have_fails_with_the_head(platform: Platform) -> None:
    keys = platform.table(commits=2)
    platform.add_keys(keys, 5)
    done = platform.backfill(keys, 5, 5)
    assert not done.success
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "its head is 2" in str(failed.event_specific_data)
    assert platform.files(keys) == []


def test_a_foreign_commit_file_stops_the_run_and_is_left_alone(platform: Platform) -> None:
    keys = platform.table(commits=2)
    platform.add_keys(keys, 2)
    platform.world.foreign(keys.table, 1)
    done = platform.backfill(keys, 2, 2)
    assert not done.success
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "DIVERGED" in str(failed.event_specific_data)
    assert platform.world.store(keys.table).read(CommitName(1)) == b'{"commitInfo":{}}\n'


def test_a_published_file_that_vanished_is_not_called_green(platform: Platform) -> None:
    keys = platform.table(commits=2)
    platform.add_keys(keys, 2)
    platform.backfill(keys, 0, 2)
    (platform.root / keys.table / "_delta_log" / CommitName(1).name).unlink()
    done = platform.backfill(keys, 1, 1)
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "is missing now" in str(failed.event_specific_data)
    assert "reconcile" in str(failed.event_specific_data)


def test_a_checkpoint_partition_builds_the_checkpoint(platform: Platform) -> None:
    keys = platform.table(commits=3)
    platform.add_keys(keys, 3)
    platform.backfill(keys, 0, 3)
    platform.instance.add_dynamic_partitions(keys.checkpoint_versions, ["2"])
    assert platform.materialize(keys.checkpoints, partition_key="2").success
    assert list(platform.world.store(keys.table).list().checkpoints) == [2]
    metadata = platform.metadata(keys.checkpoints, 2)
    assert metadata["actions"] == 4
    assert metadata["checkpoint_bytes"] > 0


def test_what_the_command_line_published_is_reported_by_the_next_run(platform: Platform) -> None:
    keys = platform.table(commits=3)
    platform.world.mirror().settle(patience_s=5)
    platform.commit(keys, 4)
    platform.add_keys(keys, 4)
    assert platform.backfill(keys, 4, 4).success
    assert platform.green(keys.commits) == [0, 1, 2, 3, 4]


def test_rows_that_cannot_be_right_are_shown_and_not_published(platform: Platform) -> None:
    keys = platform.table(commits=2)
    platform.add_keys(keys, 2)
    add = dl_add_files
    with platform.metastore.write() as connection:
        connection.execute(add.update().where(add.c.version == 2).values(size=-1))
    done = platform.backfill(keys, 2, 2)
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "nothing was published: DL-ADD-01 row of f-2.parquet" in str(failed.event_specific_data)
    assert platform.files(keys) == []
