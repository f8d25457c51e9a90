"""Where SQL and the log tell different things, SQL's history goes on at another place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pytest
from deltalake import DeltaTable
from sqlalchemy import select, update

from mirror_assets.errors import (
    StoreUnavailableError,
    TableExistsError,
    TableNotFoundError,
    TableStateError,
)
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.metastore.tables import dl_mirror_events, dl_tables
from mirror_assets.mirror import fork as fork_module
from mirror_assets.mirror.fork import Fork, fork, plan_fork
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.mirror.service import Mirror
from mirror_assets.storage.data_files import open_data_files
from mirror_assets_tests.builders import a_table, add, commit, txn
from mirror_assets_tests.mirror.foreigners import (
    a_shared_lake,
    append,
    commit_row,
    numbers_in,
    rows,
)
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.mirror.published import commit_file, contents, mirror

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.store_services import S3Server


def a_diverged_lake(metastore: Metastore, root: Path) -> Lake:
    """SQL and deltalake both made a version 3."""
    lake = a_shared_lake(metastore, root)
    commit_row(lake, 3)
    append(root, 30)
    append(root, 40)
    mirror(lake)
    (state,) = read_mirror_states(metastore)
    assert state.state == "DIVERGED"
    return lake


def elsewhere(lake: Lake) -> Lake:
    """The table as it is after the fork."""
    return Lake(lake.metastore, lake.root.with_name("elsewhere"))


def copy_data(lake: Lake) -> None:
    target = elsewhere(lake).root
    without_log = shutil.ignore_patterns("_delta_log")
    shutil.copytree(lake.root, target, ignore=without_log, dirs_exist_ok=True)


def plan_it(lake: Lake) -> Fork:
    return _run(lake, apply=False)


def fork_it(lake: Lake) -> Fork:
    return _run(lake, apply=True)


def _run(lake: Lake, *, apply: bool) -> Fork:
    store = elsewhere(lake).store
    data = open_data_files(store.location)
    return (fork if apply else plan_fork)(lake.metastore, lake.name, store, data)


def test_sqls_history_goes_on_at_the_new_place(metastore: Metastore, tmp_path: Path) -> None:
    lake = a_diverged_lake(metastore, tmp_path / "t")
    before = contents(lake)
    copy_data(lake)
    planned = plan_it(lake)
    assert (planned.files, planned.num_missing, planned.rebuilt) == (3, 0, None)
    assert LogReader(metastore).table(lake.name).location == planned.left == lake.store.location.uri
    done = fork_it(lake)
    assert done.rebuilt is not None
    assert (done.rebuilt.commits, done.rebuilt.checkpoints) == (4, (3,))
    there = elsewhere(lake)
    record = LogReader(metastore).table(lake.name)
    assert (record.location, record.state) == (there.store.location.uri, "ACTIVE")
    (state,) = read_mirror_states(metastore)
    assert (state.state, state.lag_versions, state.checkpoint_version) == ("OK", 0, 3)
    for version in range(3):
        assert commit_file(there, version).read_bytes() == commit_file(lake, version).read_bytes()
    commit_row(there, 4)
    mirror(there)
    assert numbers_in(there) == [1, 2, 3, 4]
    assert there.live_paths() == there.listed_paths()
    assert not reconcile(metastore, there.store, lake.name, Mode.FULL).findings
    assert contents(lake) == before
    assert DeltaTable(str(lake.root)).version() == 4
    with metastore.read() as connection:
        events = connection.execute(select(dl_mirror_events.c.event)).scalars().all()
    assert "forked" in events


def test_data_files_that_were_not_copied_are_told(lake: Lake) -> None:
    shared = a_diverged_lake(lake.metastore, lake.root)
    plan = plan_it(shared)
    assert (plan.num_missing, set(plan.missing)) == (3, shared.live_paths())
    copy_data(shared)
    torn = elsewhere(shared).root / min(shared.live_paths())
    torn.write_bytes(torn.read_bytes()[:-1])
    assert plan_it(shared).missing == (torn.name,)
    with pytest.raises(TableStateError, match=f"1 of 3 data files.*{torn.name}"):
        fork_it(shared)
    assert not elsewhere(shared).log.exists()
    assert LogReader(shared.metastore).table(shared.name).state == "ACTIVE"
    assert commit_row(shared, 4) == 4


def test_deletion_vectors_are_data_files_too(lake: Lake) -> None:
    lake.create(features=("deletionVectors",))
    file = lake.file(rows(1, 2))
    marked = msgspec.structs.replace(file, deletion_vector=lake.delete_rows([0]))
    commit(lake.metastore, lake.name, marked)
    plan = plan_it(lake)
    assert (plan.files, plan.num_missing) == (2, 2)
    copy_data(lake)
    assert plan_it(lake).num_missing == 0
    fork_it(lake)
    assert numbers_in(elsewhere(lake)) == [2]


def test_absolute_paths_need_no_copy(lake: Lake) -> None:
    lake.create()
    commit(lake.metastore, lake.name, add("s3://elsewhere/data/a.parquet"))
    assert (plan_it(lake).files, plan_it(lake).num_missing) == (0, 0)


def test_places_that_are_taken_are_refused(lake: Lake) -> None:
    shared = a_diverged_lake(lake.metastore, lake.root)
    copy_data(shared)
    a_table(lake.metastore, "other.table", location=str(elsewhere(shared).root))
    for work in (plan_it, fork_it):
        with pytest.raises(TableExistsError, match=r"other\.table"):
            work(shared)
    with lake.metastore.write() as connection:
        connection.execute(dl_tables.delete().where(dl_tables.c.name == "other.table"))
    elsewhere(shared).log.mkdir()
    (elsewhere(shared).log / "notes.txt").write_text("mine")
    for work in (plan_it, fork_it):
        with pytest.raises(TableExistsError, match="files of a log"):
            work(shared)
    assert LogReader(shared.metastore).table(shared.name).state == "ACTIVE"
    with pytest.raises(TableNotFoundError):
        plan_it(Lake(lake.metastore, lake.root, name="no.table"))


def test_a_fork_that_fails_lets_writers_in_again_and_a_killed_one_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = a_diverged_lake(lake.metastore, lake.root)
    copy_data(shared)

    def fails(*_: object) -> None:
        with pytest.raises(TableStateError, match="being forked"):
            commit_row(shared, 4)
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(fork_module, "rebuild", fails)
        with pytest.raises(StoreUnavailableError):
            fork_it(shared)
    commit_row(shared, 4)
    with shared.metastore.write() as connection:
        connection.execute(update(dl_tables).values(state="FORKING"))
    with pytest.raises(TableStateError, match=r"fork sales\.orders --to URI"):
        commit_row(shared, 5)
    copy_data(shared)
    fork_it(shared)
    assert numbers_in(elsewhere(shared)) == [1, 2, 3, 4]


def test_a_fork_to_s3_finds_its_data_there(lake: Lake, seaweedfs: S3Server) -> None:
    shared = a_diverged_lake(lake.metastore, lake.root)
    store, options = seaweedfs.place().open(), seaweedfs.options()
    data = open_data_files(store.location, options)
    assert plan_fork(shared.metastore, shared.name, store, data).num_missing == 3
    prefix = unquote(store.location.path).strip("/")
    for path in shared.live_paths():
        body = (shared.root / path).read_bytes()
        seaweedfs.boto3().put_object(Bucket=seaweedfs.bucket, Key=f"{prefix}/{path}", Body=body)
    fork(shared.metastore, shared.name, store, data)
    commit(shared.metastore, shared.name, txn())
    Mirror(shared.metastore, options=options).settle(patience_s=10)
    (state,) = read_mirror_states(shared.metastore)
    assert (state.state, state.mirrored_version) == ("OK", 4)
    assert not reconcile(shared.metastore, store, shared.name, Mode.FULL).findings
