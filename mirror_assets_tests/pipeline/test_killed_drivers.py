"""Rows are in a table once, whenever a driver is killed: Python, the JVM and its tasks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_assets.metastore.outcomes import AlreadyCommitted
from mirror_assets.pipeline.vacuum import vacuum
from mirror_assets_tests.pipeline import mortal_driver
from mirror_assets_tests.pipeline.killing import ROWS_OF_A_BATCH, a_source, kill_at, known_orphans
from mirror_assets_tests.pipeline.lakehouse import TABLE, by_all
from mirror_assets_tests.pipeline.mortal_driver import QUERY, Points

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.pipeline.lakehouse import Lakehouse


def require_rows(lakehouse: Lakehouse, count: int) -> None:
    lakehouse.mirror()
    for seen in by_all(lakehouse.spark, lakehouse.place()):
        assert sorted(seen) == [(number,) for number in range(count)]


def test_a_write_whose_driver_is_killed_before_and_after_its_commit_counts_once(
    lakehouse: Lakehouse, tmp_path: Path
) -> None:
    url = lakehouse.access.metastore_url()
    kill_at("1:files", "write", url, tmp_path)
    assert lakehouse.reader.table(TABLE).head_version == 0
    left = lakehouse.orphans()
    assert len(left) == 2
    assert known_orphans(lakehouse) == left
    assert vacuum(TABLE, access=lakehouse.access).young_files == 2

    kill_at("1:commit", "write", url, tmp_path)
    assert lakehouse.reader.table(TABLE).head_version == 1
    again = mortal_driver.write(lakehouse.spark, lakehouse.access, tmp_path)
    assert again.outcome == AlreadyCommitted(table=TABLE, version=1, reason="txn")
    require_rows(lakehouse, 200)
    assert lakehouse.orphans() == known_orphans(lakehouse) == left

    vacuum(TABLE, access=lakehouse.access, retain_ms=0, allow_short=True, apply=True)
    assert lakehouse.orphans() == set()
    require_rows(lakehouse, 200)


def test_a_stream_killed_in_a_task_and_after_a_commit_counts_each_batch_once(
    lakehouse: Lakehouse, tmp_path: Path
) -> None:
    url, batches = lakehouse.access.metastore_url(), 12
    a_source(tmp_path, batches)
    kill_at("3:job", "stream", url, tmp_path)
    assert lakehouse.reader.txns(TABLE)[QUERY].version == 2
    left = lakehouse.orphans()
    assert {"_temporary" in name for name in left} == {True}

    kill_at("8:commit", "stream", url, tmp_path)
    assert lakehouse.reader.txns(TABLE)[QUERY].version == 8
    mortal_driver.stream(lakehouse.spark, lakehouse.access, tmp_path, Points())
    require_rows(lakehouse, batches * ROWS_OF_A_BATCH)
    record = lakehouse.reader.table(TABLE)
    assert record.head_version == lakehouse.reader.txns(TABLE)[QUERY].version + 1
    assert lakehouse.orphans() == left
    assert known_orphans(lakehouse) >= left

    vacuum(TABLE, access=lakehouse.access, retain_ms=0, allow_short=True, apply=True)
    assert lakehouse.orphans() == known_orphans(lakehouse) == set()
