"""Cleanup of a log: what expires, what stays, and what a crash in the middle leaves."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
import time_machine
from sqlalchemy import update

from mirror_assets.delta.log_paths import LogListing
from mirror_assets.delta.table_properties import DAY_MS
from mirror_assets.errors import CheckpointMismatchError, TableStateError, UnsupportedTableError
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import pause
from mirror_assets.metastore.tables import dl_protocol_updates
from mirror_assets.mirror.cleanup import CleanupPlan, apply_cleanup, plan_cleanup, plan_of
from mirror_assets_tests.builders import changed, commit
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.mirror.published import age, assert_readable, contents, extend, publish

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror_assets.delta.log_paths import Checkpoint

#: noon of a day, so that midnight matters
NOON_MS = int(datetime(2026, 3, 31, 12, tzinfo=UTC).timestamp() * 1000)
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def a_log(*names: str, mtime_ms: int = 0) -> LogListing:
    return LogListing.of((name, 10, mtime_ms) for name in names)


def no_sidecars(_: Checkpoint) -> Collection[str] | None:
    return ()


def plan(listing: LogListing, times: dict[int, int], **changes: Any) -> CleanupPlan:
    standard: dict[str, Any] = {
        "retention_ms": 30 * DAY_MS,
        "now_ms": NOON_MS,
        "newest_base": 10**6,
        "sidecars_of": no_sidecars,
    }
    return plan_cleanup(listing, times, **standard | changes)


def days_ago(days: float) -> int:
    return NOON_MS - int(days * DAY_MS)


def test_the_newest_checkpoint_that_has_expired_stays_with_its_commit() -> None:
    commits = [commit_name(version) for version in range(6)]
    log = a_log(*commits, checkpoint_name(1), checkpoint_name(3), checkpoint_name(5))
    found = plan(log, {v: days_ago(50) if v <= 4 else days_ago(1) for v in range(6)})
    assert found.keep_from == 3
    assert found.names == [commits[0], commits[1], checkpoint_name(1), commits[2]]


def test_the_cut_off_is_midnight_before_the_retention() -> None:
    log = a_log(commit_name(0), commit_name(1), checkpoint_name(1))
    midnight_ms = days_ago(30.5)
    assert plan(log, {0: 0, 1: midnight_ms}).keep_from == 1
    assert plan(log, {0: 0, 1: midnight_ms + 1}).delete == ()


def test_without_a_checkpoint_nothing_goes() -> None:
    log = a_log(*(commit_name(version) for version in range(4)), checkpoint_name(3))
    times = {0: 0, 1: 0, 2: 0, 3: NOON_MS}
    assert plan(log, times).delete == ()
    assert plan(log, times).keep_from is None


def test_a_time_that_went_backwards_does_not_expire_what_is_before_it() -> None:
    log = a_log(*(commit_name(version) for version in range(4)), checkpoint_name(3))
    assert plan(log, {0: 0, 1: NOON_MS, 2: 0, 3: 0}).delete == ()


def test_an_incomplete_checkpoint_is_none() -> None:
    part = f"{2:020d}.checkpoint.0000000001.0000000002.parquet"
    log = a_log(*(commit_name(version) for version in range(4)), part)
    assert plan(log, dict.fromkeys(range(4), 0)).delete == ()


def test_what_the_pointer_names_is_never_touched() -> None:
    commits = [commit_name(version) for version in range(6)]
    log = a_log(*commits, checkpoint_name(2), checkpoint_name(5))
    found = plan(log, dict.fromkeys(range(6), 0), newest_base=2)
    assert found.keep_from == 2
    assert found.names == commits[:2]


def test_hints_and_checksums_go_with_their_commits() -> None:
    compaction, crossing = (f"{a:020d}.{b:020d}.compacted.json" for a, b in ((0, 1), (2, 4)))
    later = f"{3:020d}.{4:020d}.compacted.json"
    staged = f"_staged_commits/{2:020d}.{UUID}.json"
    sums = [f"{version:020d}.crc" for version in (1, 2)]
    log = a_log(
        *(commit_name(version) for version in range(5)),
        *(checkpoint_name(2), compaction, crossing, later, staged, *sums, "stray.txt"),
    )
    found = plan(log, dict.fromkeys(range(5), 0))
    assert found.names == [
        *(compaction, commit_name(0), commit_name(1), sums[0]),
        *(crossing, staged),
    ]


def test_sidecars_go_if_old_and_named_by_no_remaining_checkpoint() -> None:
    tops = [f"{version:020d}.checkpoint.{UUID}.parquet" for version in (1, 3)]
    names = [commit_name(v) for v in range(4)] + tops
    files = [(name, 10, 0) for name in (*names, "_sidecars/old.parquet", "_sidecars/kept.parquet")]
    files.append(("_sidecars/young.parquet", 10, days_ago(1)))
    log = LogListing.of(files)
    named = {tops[0]: ["_sidecars/old.parquet"], tops[1]: ["_sidecars/kept.parquet"]}
    times = dict.fromkeys(range(4), 0)
    found = plan(log, times, sidecars_of=lambda c: named[c.names[0]])
    assert found.names[-1] == "_sidecars/old.parquet"
    assert [name for name in found.names if "_sidecars" in name] == ["_sidecars/old.parquet"]
    unreadable = plan(log, times, sidecars_of=lambda _: None)
    assert [name for name in unreadable.names if "_sidecars" in name] == []


@pytest.mark.parametrize("features", [(), ("v2Checkpoint",)])
def test_every_version_that_stays_is_readable_after_a_crash_anywhere(
    lake: Lake, features: tuple[str, ...]
) -> None:
    publish(lake, 9, checkpoints=(2, 5, 8), features=features)
    age(lake, until=7, days=40)
    for sidecar in lake.log.glob("_sidecars/*"):
        os.utime(sidecar, (0, 0))
    found = plan_of(lake.metastore, lake.store, lake.name)
    assert found.keep_from == 5
    before = lake.root.with_name("before")
    shutil.copytree(lake.log, before)
    for number in range(len(found.delete) + 1):
        some = CleanupPlan(delete=found.delete[:number], keep_from=5, reason="a crash")
        apply_cleanup(lake.metastore, lake.store, lake.name, some)
        assert_readable(lake, 5, 9)
        again = plan_of(lake.metastore, lake.store, lake.name)
        assert set(again.names) == set(found.names[number:])
        shutil.rmtree(lake.log)
        shutil.copytree(before, lake.log)


def test_the_table_lives_on_after_a_cleanup(lake: Lake) -> None:
    publish(lake, 6, checkpoints=(4,))
    age(lake, until=5, days=40)
    apply_cleanup(
        lake.metastore, lake.store, lake.name, plan_of(lake.metastore, lake.store, lake.name)
    )
    assert min(contents(lake)) == checkpoint_name(4)
    extend(lake, 2)
    assert_readable(lake, 4, 8)
    assert len(lake.rows()) == 8
    assert plan_of(lake.metastore, lake.store, lake.name).delete == ()


def test_what_a_crashed_writer_left_goes_with_a_cleanup_once_it_is_old(lake: Lake) -> None:
    publish(lake, 2)
    nothing = plan_of(lake.metastore, lake.store, lake.name)
    left = [f".{'0' * 32}.tmp", f"{commit_name(3)}#1"]
    for name in left:
        (lake.log / name).write_bytes(b"{")
    apply_cleanup(lake.metastore, lake.store, lake.name, nothing)
    assert set(left) <= set(contents(lake)), "another writer may be at it"
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
        apply_cleanup(lake.metastore, lake.store, lake.name, nothing)
    assert set(left).isdisjoint(contents(lake))
    assert_readable(lake, 0, 2)


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"delta.enableExpiredLogCleanup": "false"}, "enableExpiredLogCleanup"),
        ({"delta.logRetentionDuration": "interval 50 days"}, "no commit has expired"),
        ({"delta.logRetentionDuration": "interval 1 month"}, "no interval"),
        (
            {
                "delta.feature.checkpointProtection": "supported",
                "delta.requireCheckpointProtectionBeforeVersion": "5",
            },
            "checkpointProtection",
        ),
    ],
)
def test_the_table_decides_what_is_kept(lake: Lake, properties: dict[str, str], word: str) -> None:
    publish(lake, 6)
    lake.checkpoint(4)
    summary = LogReader(lake.metastore).summary(lake.name)
    kept = {k: v for k, v in properties.items() if "feature" not in k}
    if "delta.feature.checkpointProtection" in properties:
        with lake.metastore.write() as connection:
            listed = '["checkpointProtection","inCommitTimestamp"]'
            values = {"min_writer_version": 7, "writer_features": listed}
            connection.execute(update(dl_protocol_updates).values(values))
    commit(lake.metastore, lake.name, changed(summary.metadata, **kept))
    extend(lake)
    age(lake, until=6, days=40)
    found = plan_of(lake.metastore, lake.store, lake.name)
    assert found.delete == ()
    assert word in found.reason


def test_cleanup_waits_for_what_is_unpublished_or_stopped(lake: Lake) -> None:
    publish(lake, 4, checkpoints=(3,))
    age(lake, until=4, days=40)
    commit(lake.metastore, lake.name, lake.file(pa.table({"id": [1]})))
    with pytest.raises(TableStateError, match="not published"):
        plan_of(lake.metastore, lake.store, lake.name)
    extend(lake)
    pause(lake.metastore, lake.name, "a test")
    with pytest.raises(TableStateError, match="PAUSED"):
        plan_of(lake.metastore, lake.store, lake.name)


def test_cleanup_leaves_tables_alone_whose_features_it_does_not_know(lake: Lake) -> None:
    publish(lake, 4, checkpoints=(3,))
    protocol = LogReader(lake.metastore).summary(lake.name).protocol
    names = [*(protocol.writer_features or []), "somethingNew"]
    with lake.metastore.write() as connection:
        listed = msgspec.json.encode(names).decode()
        connection.execute(update(dl_protocol_updates).values(writer_features=listed))
    with pytest.raises(UnsupportedTableError, match="somethingNew"):
        plan_of(lake.metastore, lake.store, lake.name)


@pytest.mark.parametrize("damage", ["no pointer", "gap", "torn"])
def test_a_damaged_log_is_not_cleaned(lake: Lake, damage: str) -> None:
    publish(lake, 6, checkpoints=(4,))
    age(lake, until=6, days=40)
    match damage:
        case "no pointer":
            (lake.log / "_last_checkpoint").unlink()
        case "gap":
            (lake.log / commit_name(5)).unlink()
        case "torn":
            whole = (lake.log / checkpoint_name(4)).read_bytes()
            (lake.log / checkpoint_name(4)).write_bytes(whole[:-20])
    with pytest.raises((TableStateError, CheckpointMismatchError)):
        plan_of(lake.metastore, lake.store, lake.name)
