"""What others wrote into a log is noticed before anything is published over it, and told."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mirror_assets.errors import TableStateError, WriteRefusedError
from mirror_assets.metastore.mirror_state import read_mirror_states, resume
from mirror_assets.mirror.adopt import adopt
from mirror_assets.mirror.release import release
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.vacuum import vacuum
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.mirror.foreigners import a_shared_lake, append, commit_row, numbers_in
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.mirror.published import commit_file, contents, mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.mirror_state import MirrorState


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    """A second deployment: the same table at the same place in another SQL database."""
    a_shared_lake(lake.metastore, lake.root)
    copy = tmp_path / "other.db"
    with closing(sqlite3.connect(tmp_path / "metastore.db")) as database:
        database.execute("VACUUM INTO ?", (str(copy),))
    with a_metastore(f"sqlite:///{copy}") as metastore:
        yield Lake(metastore, lake.root)


def state_of(lake: Lake) -> MirrorState:
    (state,) = read_mirror_states(lake.metastore)
    return state


def test_a_table_that_stops_says_what_differs_action_by_action(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    commit_row(shared, 3)
    append(shared.root, 30)
    append(shared.root, 40)
    mirror(shared)
    state = state_of(shared)
    error = state.last_error or ""
    assert state.state == "DIVERGED"
    assert "is only in SQL" in error
    assert f"mirror-assets fork {shared.name} --to URI" in error
    assert state.mirrored_version == 2


def test_a_log_that_is_ahead_names_who_wrote_it(lake: Lake) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    append(shared.root, 30)
    append(shared.root, 40)
    commit_file(shared, 3).rename(shared.root / "kept")
    commit_row(shared, 3)
    mirror(shared)
    state = state_of(shared)
    assert state.state == "AHEAD"
    assert "WRITE by delta-rs" in (state.last_error or "")
    assert "1 add" in (state.last_error or "")


def test_of_two_deployments_at_one_place_only_one_goes_on(lake: Lake, other: Lake) -> None:
    commit_row(lake, 3)
    commit_row(other, 30)
    mirror(lake)
    before = contents(lake)
    mirror(other)
    assert (state_of(lake).state, state_of(other).state) == ("OK", "DIVERGED")
    commit_row(other, 31)
    resume(other.metastore, other.name)
    mirror(other)
    assert state_of(other).state == "DIVERGED"
    assert contents(lake) == before
    commit_row(lake, 4)
    mirror(lake)
    assert numbers_in(lake) == [1, 2, 3, 4]


def test_a_deployment_that_slept_meets_the_other_before_it_publishes(
    lake: Lake, other: Lake
) -> None:
    for number in (3, 4):
        commit_row(other, number)
    mirror(other)
    commit_row(lake, 30)
    before = contents(lake)
    mirror(lake)
    assert (state_of(lake).state, state_of(other).state) == ("DIVERGED", "OK")
    assert contents(lake) == before


def test_a_vacuum_leaves_files_of_foreign_commits_alone(lake: Lake, tmp_path: Path) -> None:
    shared = a_shared_lake(lake.metastore, lake.root)
    access = Access.to(f"sqlite:///{tmp_path / 'metastore.db'}")
    much_later = time.time_ns() // 1_000_000 + 30 * 86_400_000
    assert vacuum(shared.name, access=access, now_ms=much_later).delete == ()
    append(shared.root, 30)
    with pytest.raises(WriteRefusedError, match=r"version 3 .*adopt sales\.orders"):
        vacuum(shared.name, access=access, now_ms=much_later, apply=True)
    adopt(shared.metastore, shared.store, shared.name, apply=True)
    assert vacuum(shared.name, access=access, now_ms=much_later, apply=True).delete == ()
    release(Mirror(shared.metastore), shared.name, engine_info="test", patience_s=5)
    append(shared.root, 40)
    with pytest.raises(TableStateError, match="released"):
        vacuum(shared.name, access=access, now_ms=much_later, apply=True)
    assert numbers_in(shared) == [1, 2, 30, 40]
