"""The disaster drill: the log of a table from SQL alone, at another place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sqlalchemy import update

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import (
    CommitIntegrityError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedTableError,
)
from mirror_assets.metastore import checkpoint_source
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.tables import dl_table_versions
from mirror_assets.mirror import republishing
from mirror_assets.mirror.rebuild import Rebuilt, rebuild
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.mirror.published import commit_file, contents, publish

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.storage.log_store import LogStore
    from mirror_assets_tests.mirror.lake import Lake
    from mirror_assets_tests.store_services import S3Server


@pytest.fixture
def elsewhere(tmp_path: Path) -> LogStore:
    return open_store(
        str(tmp_path / "elsewhere"), StoreOptions(durable=False), allowed_roots=[tmp_path.as_uri()]
    )


def files_at(place: LogStore, version: int | None = None) -> set[str]:
    """As deltalake lists them."""
    table = DeltaTable(place.location.path, version=version)
    return set(pa.table(table.get_add_actions())["path"].to_pylist())


@pytest.mark.parametrize("features", [(), ("v2Checkpoint",)])
def test_the_log_is_the_same_and_readers_open_it(
    lake: Lake, elsewhere: LogStore, features: tuple[str, ...]
) -> None:
    publish(lake, 7, features=features)
    done = rebuild(lake.metastore, lake.name, elsewhere)
    assert done == Rebuilt(commits=8, checkpoints=(7,))
    for version in range(8):
        name = CommitName(version)
        assert elsewhere.read(name) == commit_file(lake, version).read_bytes()
        assert files_at(elsewhere, version) == lake.live_paths(version)
    assert files_at(elsewhere) == lake.live_paths()


def test_the_log_survives_the_loss_of_its_own_place(lake: Lake, elsewhere: LogStore) -> None:
    publish(lake, 3)
    before = contents(lake)
    for file in lake.log.iterdir():
        file.unlink()
    rebuild(lake.metastore, lake.name, elsewhere)
    for name, data in before.items():
        assert (lake.root.parent / "elsewhere" / "_delta_log" / name).read_bytes() == data


@pytest.mark.parametrize("history", ["full", "checkpoint"])
@pytest.mark.parametrize("oldest", [0, 4, 5])
def test_an_import_without_its_beginning_starts_with_a_checkpoint(
    lake: Lake, elsewhere: LogStore, history: str, oldest: int
) -> None:
    publish(lake, 7, checkpoints=(4,))
    lake.forget_commits_before(oldest)
    name = "taken.over"
    other = lake.root.with_name("copy")
    lake.root.rename(other)
    store = open_store(str(other), StoreOptions(durable=False), allowed_roots=[])
    import_table(lake.metastore, store.source, name, history=history)  # type: ignore[arg-type]
    record = LogReader(lake.metastore).table(name)
    done = rebuild(lake.metastore, name, elsewhere)
    first = max(record.first_version, record.floor_version)
    assert done.commits == 8 - record.first_version
    assert done.checkpoints == ((7,) if first == 0 else (first, 7))
    for version in range(first, 8):
        live = {add.path for add in LogReader(lake.metastore).live_files(name, version)}
        assert files_at(elsewhere, version) == live
    report = reconcile(lake.metastore, elsewhere, name, Mode.FULL)
    assert not report.has_errors


def test_a_place_that_holds_anything_is_refused(lake: Lake, elsewhere: LogStore) -> None:
    publish(lake, 1)
    directory = lake.root.parent / "elsewhere" / "_delta_log"
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("mine")
    with pytest.raises(TableExistsError):
        rebuild(lake.metastore, lake.name, elsewhere)
    assert [file.name for file in directory.iterdir()] == ["notes.txt"]
    with pytest.raises(TableNotFoundError):
        rebuild(lake.metastore, "no.table", elsewhere)


def test_a_log_of_which_only_a_checkpoint_is_known_is_a_checkpoint_again(
    lake: Lake, elsewhere: LogStore
) -> None:
    publish(lake, 4, checkpoints=(4,))
    lake.forget_commits_before(5)
    other = lake.root.with_name("copy")
    lake.root.rename(other)
    store = open_store(str(other), StoreOptions(durable=False), allowed_roots=[])
    import_table(lake.metastore, store.source, "taken.over")

    assert rebuild(lake.metastore, "taken.over", elsewhere) == Rebuilt(commits=0, checkpoints=(4,))

    live = {add.path for add in LogReader(lake.metastore).live_files("taken.over")}
    assert files_at(elsewhere) == live
    assert len(live) == 4


def test_a_table_whose_checkpoints_are_not_ours_has_its_commits_and_the_reason(
    lake: Lake, elsewhere: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, 3)
    monkeypatch.setattr(checkpoint_source, "unsupported_writer_features", _something_new)

    done = rebuild(lake.metastore, lake.name, elsewhere)

    assert (done.commits, done.checkpoints) == (4, ())
    assert "'somethingNew'" in (done.no_checkpoint or "")
    assert files_at(elsewhere) == lake.live_paths()


def test_nothing_is_written_where_a_checkpoint_is_needed_that_is_not_ours(
    lake: Lake, elsewhere: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, 5, checkpoints=(4,))
    lake.forget_commits_before(5)
    other = lake.root.with_name("copy")
    lake.root.rename(other)
    store = open_store(str(other), StoreOptions(durable=False), allowed_roots=[])
    import_table(lake.metastore, store.source, "taken.over")
    monkeypatch.setattr(checkpoint_source, "unsupported_writer_features", _something_new)

    with pytest.raises(UnsupportedTableError, match="somethingNew"):
        rebuild(lake.metastore, "taken.over", elsewhere)

    assert elsewhere.list().is_empty


def _something_new(_: object) -> set[str]:
    """A feature that nobody knows."""
    return {"somethingNew"}


def test_large_commits_go_through_a_file(
    lake: Lake, elsewhere: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, 3)
    monkeypatch.setattr(republishing, "_BATCH_BYTES", 10)
    assert rebuild(lake.metastore, lake.name, elsewhere).commits == 4
    for version in range(4):
        assert elsewhere.read(CommitName(version)) == commit_file(lake, version).read_bytes()


@pytest.mark.parametrize("batch_bytes", [10, 10**6])
def test_rows_that_do_not_give_the_committed_bytes_are_not_published(
    lake: Lake, elsewhere: LogStore, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    publish(lake, 3)
    monkeypatch.setattr(republishing, "_BATCH_BYTES", batch_bytes)
    with lake.metastore.write() as connection:
        versions = dl_table_versions
        connection.execute(update(versions).where(versions.c.version == 2).values(sha256="00"))
    with pytest.raises(CommitIntegrityError):
        rebuild(lake.metastore, lake.name, elsewhere)
    assert list(elsewhere.list().commits) == [0, 1]


def test_a_log_is_rebuilt_and_reconciled_on_s3(lake: Lake, seaweedfs: S3Server) -> None:
    publish(lake, 30, checkpoints=())
    store = seaweedfs.place().open()
    assert rebuild(lake.metastore, lake.name, store) == Rebuilt(commits=31, checkpoints=(30,))
    assert reconcile(lake.metastore, store, lake.name, Mode.FULL).findings == ()
    for version in (7, 30):
        store.delete(CommitName(version))
    report = reconcile(lake.metastore, store, lake.name, Mode.FULL, apply=True)
    assert [repair.version for repair in report.applied] == [7, 30]
    assert report.findings == ()
