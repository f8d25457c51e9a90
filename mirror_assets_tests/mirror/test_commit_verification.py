"""`verify NAME --version N`: one commit against SQL, whatever the size of its table."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import orjson
import pyarrow as pa
import pytest
from sqlalchemy import event

from mirror_assets.errors import VersionNotFoundError
from mirror_assets.mirror.commit_verification import verify_commit
from mirror_assets.storage.delegating import DelegatingStore
from mirror_assets.storage.table_files import table_files
from mirror_assets_tests.builders import a_metastore, commit
from mirror_assets_tests.delta.samples import a_field, an_add
from mirror_assets_tests.mirror.lake import Lake, removal
from mirror_assets_tests.mirror.published import commit_file, mirror, publish

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.delta.log_paths import LogListing, LogPath


class CountingStore(DelegatingStore):
    """Counts what is asked of the store."""

    requests = 0

    def read(self, path: LogPath) -> bytes | None:
        self.requests += 1
        return super().read(path)

    def size(self, path: LogPath) -> int | None:
        self.requests += 1
        return super().size(path)

    def list(self, after: int | None = None) -> LogListing:
        raise AssertionError(f"a listing grows with the log: {after}")


@dataclass(frozen=True)
class Price:
    requests: int
    statements: int
    #: instructions of SQLite's own machine, in tens: rows read or walked past count
    steps: int


def price(folder: Path, files: int) -> Price:
    """Of verifying a commit of two actions on a table of so many files."""
    folder.mkdir()
    with a_metastore(f"sqlite:///{folder / 'metastore.db'}") as metastore:
        lake = Lake(metastore, folder / "table")
        lake.create(a_field("id"))
        adds = [an_add(f"part-{number}.parquet") for number in range(files)]
        for first in range(0, files, 100):
            commit(metastore, lake.name, *adds[first : first + 100])
        version = commit(metastore, lake.name, removal(adds[7]), an_add("new.parquet")).version
        mirror(lake)
        store, steps, statements = CountingStore(lake.store), [0], [0]

        def step() -> None:
            steps[0] += 1

        def watch(connection: object, *_: object) -> None:
            connection.set_progress_handler(step, 10)

        def count(*_: object) -> None:
            statements[0] += 1

        event.listen(metastore.engine, "checkout", watch)
        event.listen(metastore.engine, "before_cursor_execute", count)
        report = verify_commit(metastore, store, lake.name, version)
        assert report.findings == ()
        assert report.growth[0].files == files
    return Price(store.requests, statements[0], steps[0])


def test_the_price_does_not_grow_with_the_table(tmp_path: Path) -> None:
    small, large = price(tmp_path / "small", 100), price(tmp_path / "large", 5_000)
    assert large.requests == small.requests == 1
    assert large.statements == small.statements
    assert 0 < large.steps <= small.steps * 1.5


def findings(lake: Lake, version: int) -> set[str]:
    report = verify_commit(
        lake.metastore,
        lake.store,
        lake.name,
        version,
        read_data=table_files(lake.store.location),
    )
    return {finding.rule for finding in report.findings if finding.severity != "info"}


def test_published_commits_are_sound_on_every_engine(metastore_url: str, tmp_path: Path) -> None:
    with a_metastore(metastore_url) as metastore:
        lake = Lake(metastore, tmp_path / "table")
        lake.create(
            a_field("id"),
            features=("deletionVectors", "domainMetadata"),
            configuration={"delta.enableDeletionVectors": "true"},
        )
        whole = lake.file(pa.table({"id": [1, 2, 3, 4]}))
        commit(metastore, lake.name, whole, lake.file(pa.table({"id": [9]})))
        holed = msgspec.structs.replace(whole, deletion_vector=lake.delete_rows([1, 3]))
        commit(metastore, lake.name, removal(whole), holed)
        commit(metastore, lake.name, removal(holed))
        commit(metastore, lake.name, whole)
        mirror(lake)
        assert [findings(lake, version) for version in range(5)] == [set()] * 5


def test_what_contradicts_the_state_before_is_found(lake: Lake) -> None:
    publish(lake, 3)
    info, new = commit_file(lake, 3).read_bytes().splitlines()
    before = orjson.loads(commit_file(lake, 2).read_bytes().splitlines()[1])["add"]
    larger = orjson.dumps({"add": before | {"size": before["size"] + 1}})
    commit_file(lake, 3).write_bytes(b"\n".join((info, larger, new, b"")))
    assert findings(lake, 3) == {"DL-FILE-02", "DL-FILE-17", "DL-REC-10"}
    assert findings(lake, 2) == set()


def test_a_vector_whose_file_is_gone_is_found(lake: Lake) -> None:
    lake.create(
        a_field("id"),
        features=("deletionVectors",),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    whole = lake.file(pa.table({"id": [1, 2]}))
    lake.commit(whole)
    version = lake.commit(
        removal(whole), msgspec.structs.replace(whole, deletion_vector=lake.delete_rows([0]))
    )
    next(lake.root.glob("deletion_vector_*")).unlink()
    assert findings(lake, version) == {"DL-DV-05"}


def test_a_file_that_is_gone_is_told_and_one_that_is_not_published_is_no_error(lake: Lake) -> None:
    publish(lake, 2)
    commit_file(lake, 2).unlink()
    assert findings(lake, 2) == {"DL-FILE-03"}
    shutil.rmtree(lake.root)
    commit(lake.metastore, lake.name, an_add("late.parquet"))
    assert findings(lake, 3) == set()


@pytest.mark.parametrize("version", [4, 99])
def test_a_version_that_sql_does_not_have_is_refused(lake: Lake, version: int) -> None:
    publish(lake, 3)
    with pytest.raises(VersionNotFoundError, match="commits 0 to 3"):
        verify_commit(lake.metastore, lake.store, lake.name, version)
