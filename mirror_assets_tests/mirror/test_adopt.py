"""A log that is ahead of SQL is taken over byte for byte, or refused for a reason."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sqlalchemy import select, update

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import (
    DivergenceError,
    ImportRefusedError,
    LogGapError,
    TableNotFoundError,
    TableStateError,
)
from mirror_assets.metastore import import_store
from mirror_assets.metastore.import_store import ImportStore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import read_mirror_states, read_version_states
from mirror_assets.metastore.tables import dl_mirror_events, dl_tables
from mirror_assets.mirror.adopt import Adoption, adopt
from mirror_assets.mirror.log_diff import diff_log
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.mirror.release import release
from mirror_assets.mirror.service import Mirror
from mirror_assets_tests.builders import a_metastore, commit, state_in_sql, txn
from mirror_assets_tests.mirror.foreigners import (
    a_shared_lake,
    append,
    commit_row,
    numbers_in,
    rows,
)
from mirror_assets_tests.mirror.lake import Lake, removal
from mirror_assets_tests.mirror.published import commit_file, contents, mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.import_parts import CommitFacts


def adopt_it(lake: Lake, *, apply: bool = True) -> Adoption:
    return adopt(lake.metastore, lake.store, lake.name, apply=apply)


@contextmanager
def a_backup(lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    """The same table in another SQL database, which knows it as it is now."""
    copy = tmp_path / "backup.db"
    with closing(sqlite3.connect(tmp_path / "metastore.db")) as database:
        database.execute("VACUUM INTO ?", (str(copy),))
    with a_metastore(f"sqlite:///{copy}") as metastore:
        yield Lake(metastore, lake.root)


def release_state(lake: Lake) -> None:
    with lake.metastore.write() as connection:
        connection.execute(update(dl_tables).values(state="RELEASED"))


def test_versions_of_a_foreign_writer_become_sqls(metastore: Metastore, tmp_path: Path) -> None:
    lake = a_shared_lake(metastore, tmp_path / "t")
    append(lake.root, 3)
    DeltaTable(str(lake.root)).delete("id = 1")
    append(lake.root, 4)
    before = contents(lake)
    planned = adopt_it(lake, apply=False)
    assert [(c.version, c.operation, c.num_adds) for c in planned.commits] == [
        (3, "WRITE", 1),
        (4, "DELETE", 0),
        (5, "WRITE", 1),
    ]
    assert "delta-rs" in (planned.commits[0].engine or "")
    assert LogReader(metastore).table(lake.name).head_version == 2
    assert adopt_it(lake) == planned
    commit_row(lake, 5)
    mirror(lake)
    assert numbers_in(lake) == [2, 3, 4, 5]
    assert lake.live_paths() == lake.listed_paths()
    assert lake.live_paths(3) == set(
        pa.table(DeltaTable(str(lake.root), version=3).get_add_actions())["path"].to_pylist()
    )
    assert {name: data for name, data in contents(lake).items() if name in before} == before
    assert not reconcile(metastore, lake.store, lake.name, Mode.FULL).findings
    states = {s.version: s for s in read_version_states(metastore, lake.name, limit=10)}
    assert [(states[v].status, states[v].resolved_by) for v in (3, 4, 5, 6)] == [
        *([("SUCCESS", "readback")] * 3),
        ("SUCCESS", "put"),
    ]
    assert adopt_it(lake).commits == ()


def test_sql_that_was_restored_catches_up_with_its_own_log(lake: Lake, tmp_path: Path) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    with a_backup(shared, tmp_path) as restored:
        file = shared.file(rows(3))
        commit(shared.metastore, shared.name, file)
        commit(shared.metastore, shared.name, removal(file), txn())
        mirror(shared)
        report = reconcile(restored.metastore, restored.store, restored.name, Mode.SMART)
        assert {f.rule for f in report.findings} == {"MA-403"}
        assert "adopt" in report.findings[0].remedy
        assert [c.version for c in adopt_it(restored).commits] == [3, 4]
        history = LogReader(restored.metastore).history(restored.name)
        assert [row["source"] for row in history] == ["adopt", "adopt", *["commit"] * 3]
        assert state_in_sql(restored.metastore, restored.name) == state_in_sql(
            shared.metastore, shared.name
        )
        commit_row(restored, 5)
        mirror(restored)
        assert numbers_in(restored) == [1, 2, 5]


def test_adopting_lets_a_table_go_on_that_had_stopped(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root, commits=1)
    commit_row(shared, 2)
    for made in LogReader(shared.metastore).commits(shared.name, 2, 2):
        shared.store.put_if_absent(CommitName(2), made.encode(shared.name))
    append(shared.root, 3)
    mirror(shared)
    (state,) = read_mirror_states(shared.metastore)
    assert state.state == "AHEAD"
    assert f"mirror-assets adopt {shared.name}" in (state.last_error or "")
    assert adopt_it(shared).version == 3
    (state,) = read_mirror_states(shared.metastore)
    assert (state.state, state.lag_versions, state.last_error) == ("OK", 0, None)
    commit_row(shared, 4)
    mirror(shared)
    assert numbers_in(shared) == [1, 2, 3, 4]
    with shared.metastore.read() as connection:
        events = connection.execute(select(dl_mirror_events.c.event)).scalars().all()
    assert {"ahead", "adopted"} <= set(events)


def test_what_would_lose_a_commit_of_sql_is_refused(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    commit_row(shared, 3)
    append(shared.root, 30)
    append(shared.root, 40)
    before = contents(shared)
    with pytest.raises(DivergenceError, match=r"1 unpublished.*fork sales\.orders --to") as refusal:
        adopt_it(shared)
    assert refusal.value.version == 3
    assert LogReader(shared.metastore).table(shared.name).head_version == 3
    assert contents(shared) == before
    found = diff_log(shared.metastore, shared.store, shared.name)
    assert {finding.version for finding in found} == {3}


def test_a_published_version_that_was_changed_is_refused(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    file = commit_file(shared, 1)
    file.write_bytes(file.read_bytes().replace(b'"id', b'"iD'))
    append(shared.root, 3)
    with pytest.raises(DivergenceError) as refusal:
        adopt_it(shared)
    assert refusal.value.version == 1


@pytest.mark.parametrize("missing", [2, 3])
def test_a_log_with_a_hole_is_refused(lake: Lake, missing: int) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    append(shared.root, 3)
    append(shared.root, 4)
    commit_file(shared, missing).unlink()
    with pytest.raises((LogGapError, TableStateError), match=f"{missing}.json"):
        adopt_it(shared)


def test_commits_that_cannot_be_understood_are_refused(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    commit_file(shared, 3).write_bytes(b'{"add":{"path":')
    with pytest.raises(ImportRefusedError):
        adopt_it(shared)
    upgrade = {"minReaderVersion": 3, "minWriterVersion": 7}
    upgrade |= {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    commit_file(shared, 3).write_text(json.dumps({"protocol": upgrade}) + "\n")
    with pytest.raises(ImportRefusedError, match="another catalog"):
        adopt_it(shared)
    assert LogReader(shared.metastore).table(shared.name).state == "ACTIVE"
    commit_row(shared, 3)


def test_an_interrupted_adoption_goes_on(
    metastore: Metastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = a_shared_lake(metastore, tmp_path / "t")
    for number in (3, 4, 5):
        append(lake.root, number)
    finish = ImportStore.finish

    def killed(self: ImportStore, facts: CommitFacts) -> None:
        if facts.version == 4:
            raise KeyboardInterrupt
        finish(self, facts)

    monkeypatch.setattr(import_store, "_BATCH_ROWS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(ImportStore, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            adopt_it(lake)
    with pytest.raises(TableStateError, match="being adopted"):
        commit_row(lake, 6)
    mirror(lake)
    adopt_it(lake)
    commit_row(lake, 6)
    mirror(lake)
    assert numbers_in(lake) == [1, 2, 3, 4, 5, 6]
    assert lake.live_paths() == lake.listed_paths()
    assert not reconcile(metastore, lake.store, lake.name, Mode.FULL).findings


def test_a_released_table_is_taken_back_with_what_others_wrote(
    metastore: Metastore, tmp_path: Path
) -> None:
    lake = a_shared_lake(metastore, tmp_path / "t")
    release(Mirror(metastore), lake.name, engine_info="test", patience_s=5)
    assert adopt_it(lake, apply=False).is_taken_back
    assert LogReader(metastore).table(lake.name).state == "RELEASED"
    append(lake.root, 3)
    table = DeltaTable(str(lake.root))
    table.optimize.compact()
    table.create_checkpoint()
    assert [c.version for c in adopt_it(lake).commits] == [3, 4]
    commit_row(lake, 4)
    mirror(lake)
    assert numbers_in(lake) == [1, 2, 3, 4]
    assert not reconcile(metastore, lake.store, lake.name, Mode.FULL).has_errors


def test_a_release_is_undone_where_nothing_was_written(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    release(Mirror(shared.metastore), shared.name, engine_info="test", patience_s=5)
    assert adopt_it(shared).commits == ()
    assert commit_row(shared, 3) == 3
    shared.log.rename(shared.root / "elsewhere")
    release_state(shared)
    with pytest.raises(TableStateError, match="import"):
        adopt_it(shared)


def test_a_table_that_is_not_registered_is_refused(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        adopt_it(lake)
