"""Fences keep real foreign writers out and no reader; a released table is theirs again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from mirror_assets.delta.features import FENCE
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import TableNotFoundError, TableStateError
from mirror_assets.metastore.fencing import Fencing, set_fence
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.mirror_state import pause, read_mirror_states, resume
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.mirror.release import Released, release
from mirror_assets.mirror.service import Mirror
from mirror_assets.mirror.verification import verify_table
from mirror_assets_tests.mirror.foreigners import (
    a_shared_lake,
    append,
    commit_row,
    numbers_in,
)
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.mirror.published import mirror

if TYPE_CHECKING:
    from mirror_assets.metastore.database import Metastore


def fence(lake: Lake, *, fenced: bool = True) -> Fencing:
    reader, writer = LogReader(lake.metastore), SqlTxnLogWriter(lake.metastore)
    done = set_fence(reader, writer, lake.name, fenced=fenced)
    mirror(lake)
    return done


def release_it(lake: Lake) -> Released:
    return release(Mirror(lake.metastore), lake.name, engine_info="test", patience_s=5)


def orphan(lake: Lake) -> Path:
    """A data file that the log does not name yet: what a foreign vacuum would take."""
    path = lake.root / "not-yet-published.parquet"
    path.write_bytes(b"data")
    return path


def test_a_fence_keeps_foreign_writers_out_and_no_reader(
    metastore: Metastore, tmp_path: Path
) -> None:
    lake = a_shared_lake(metastore, tmp_path / "t")
    data = orphan(lake)
    assert fence(lake).version == 3
    table = DeltaTable(str(lake.root))
    with pytest.raises(CommitFailedError, match=FENCE):
        append(lake.root, 9)
    with pytest.raises(CommitFailedError, match=FENCE):
        table.optimize.compact()
    with pytest.raises(CommitFailedError, match=FENCE):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert data.exists()
    commit_row(lake, 3)
    mirror(lake)
    assert numbers_in(lake) == [1, 2, 3]
    assert table.version() == 3
    assert fence(lake, fenced=False).version == 5
    assert verify_table(metastore, lake.store, lake.name).findings == ()
    assert append(lake.root, 9) == 6
    assert numbers_in(lake) == [1, 2, 3, 9]


def test_a_fence_keeps_what_old_version_numbers_imply_and_gives_them_back(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    up = fence(shared).protocol
    assert (up.min_reader_version, up.min_writer_version, up.reader_features) == (1, 7, None)
    assert up.writer_features == ["appendOnly", "invariants", FENCE]
    down = fence(shared, fenced=False).protocol
    assert (down.min_reader_version, down.min_writer_version) == (1, 2)
    assert (down.reader_features, down.writer_features) == (None, None)


@pytest.mark.parametrize("feature", ["columnMapping", "deletionVectors"])
def test_a_fence_does_not_change_what_readers_must_know(lake: Lake, feature: str) -> None:
    lake.create(features=(feature,))
    mirror(lake)
    before = LogReader(lake.metastore).summary(lake.name).protocol
    up = fence(lake).protocol
    assert up.min_reader_version == before.min_reader_version
    assert up.reader_features == before.reader_features
    assert DeltaTable(str(lake.root)).version() == 1
    assert fence(lake, fenced=False).protocol == before


def test_a_fence_that_stands_is_left_alone(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    assert fence(shared, fenced=False).version is None
    assert [fence(shared).version, fence(shared).version] == [3, None]
    with pytest.raises(TableNotFoundError):
        fence(Lake(lake.metastore, lake.root, name="no.table"))


def test_a_checkpoint_of_a_fenced_table_is_read_and_keeps_the_fence(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    fence(shared)
    shared.checkpoint(3)
    shared.forget_commits_before(3)
    assert numbers_in(shared) == [1, 2]
    with pytest.raises(CommitFailedError, match=FENCE):
        append(shared.root, 9)


def test_a_released_table_belongs_to_file_based_writers(
    metastore: Metastore, tmp_path: Path
) -> None:
    lake = a_shared_lake(metastore, tmp_path / "t")
    fence(lake)
    commit_row(lake, 3)
    done = release_it(lake)
    assert (done.state, done.version, done.checkpoint_version) == (TableState.RELEASED, 5, 5)
    assert done.features == ("appendOnly", "invariants")
    assert DeltaTable(str(lake.root)).version() == 5
    with pytest.raises(TableStateError, match=r"released.*adopt sales\.orders --apply"):
        commit_row(lake, 4)
    assert [append(lake.root, 4), append(lake.root, 5)] == [6, 7]
    DeltaTable(str(lake.root)).create_checkpoint()
    assert numbers_in(lake) == [1, 2, 3, 4, 5]
    assert release_it(lake) == done


def test_the_mirror_leaves_a_released_log_alone(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    release_it(shared)
    for number in range(3, 20):
        append(shared.root, number)
    service = Mirror(shared.metastore)
    assert service.settle(patience_s=1) == []
    assert service.checkpoints.run_due() == {}
    (state,) = read_mirror_states(shared.metastore)
    assert (state.state, state.is_stopped, state.lag_versions) == ("RELEASED", False, 0)
    report = reconcile(shared.metastore, shared.store, shared.name, Mode.FULL, apply=True)
    assert (report.has_errors, report.plan) == (False, ())
    assert "released" in report.findings[0].message
    with pytest.raises(TableStateError, match="released"):
        service.checkpoints.build(shared.name)
    with pytest.raises(TableStateError, match="released"):
        fence(shared)


def test_a_release_that_cannot_publish_goes_on_later(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    pause(shared.metastore, shared.name, "a test")
    commit_row(shared, 3)
    with pytest.raises(TableStateError, match="PAUSED"):
        release_it(shared)
    commit_row(shared, 4)  # nothing has begun
    resume(shared.metastore, shared.name)
    foreign = shared.log / CommitName(3).name
    foreign.write_bytes(b'{"commitInfo":{}}\n')
    with pytest.raises(TableStateError, match="DIVERGED"):
        release_it(shared)
    with pytest.raises(TableStateError, match="being released"):
        commit_row(shared, 5)
    foreign.unlink()
    resume(shared.metastore, shared.name)
    assert release_it(shared).version == 4
    assert numbers_in(shared) == [1, 2, 3, 4]
