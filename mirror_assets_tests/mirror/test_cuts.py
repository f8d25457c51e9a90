"""Commits to several tables: published together, and named together for readers of the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mirror_assets.delta.log_paths import CommitName, CutName
from mirror_assets.errors import StoreUnavailableError
from mirror_assets.metastore.cuts import read_cut
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.mirror_state import pause, read_version_states, resume
from mirror_assets.mirror.engine import EngineSettings
from mirror_assets.storage.log_store import digest
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.builders import add, commit
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from mirror_assets.metastore.database import Metastore


@pytest.fixture
def world(metastore: Metastore, tmp_path: Path) -> World:
    """Three tables on local disk, on each engine in turn."""
    world = World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))
    for name in ("shop.items", "shop.orders", "shop.stock"):
        world.table(name)
    return world


def commit_together(world: World, *tables: str, path: str = "f") -> dict[str, int]:
    with SqlTxnLogWriter(world.metastore).transaction() as transaction:
        for table in tables:
            transaction.commit(table, [add(path)])
    return {outcome.table: outcome.version for outcome in transaction.outcomes}


def newest_cut(world: World, table: str) -> dict[str, int] | None:
    """As a script finds it, which knows nothing but the table's place: the last name."""
    found = sorted((Path(world.location(table)) / "_delta_log" / "_cuts").glob("*.json"))
    if not found:
        return None
    cut = json.loads(found[-1].read_bytes())
    return {member["table"]: member["version"] for member in cut["tables"]}


def live_paths(location: str, version: int) -> list[str]:
    actions = DeltaTable(location, version=version).get_add_actions()
    return sorted(pa.table(actions)["path"].to_pylist())


def cut_in_sql(world: World, *tables: str) -> dict[str, int]:
    return {t.table: t.version for t in read_cut(world.metastore, tables or None).tables}


def test_each_participant_names_the_versions_that_belong_together(world):
    commit(world.metastore, "shop.items", add("alone"))
    versions = commit_together(world, "shop.items", "shop.orders")
    world.mirror().settle(patience_s=5)

    assert versions == {"shop.items": 2, "shop.orders": 1}
    assert newest_cut(world, "shop.items") == newest_cut(world, "shop.orders") == versions
    assert newest_cut(world, "shop.stock") is None
    cut = json.loads(world.store("shop.items").read(CutName(2)))
    for member in cut["tables"]:
        store = open_store(member["location"], world.options, allowed_roots=())
        assert digest(store.read(CommitName(member["version"]))) == member["sha256"]
        assert "f" in live_paths(member["location"], member["version"])
    artifacts = {
        v.artifact: v.status for v in read_version_states(world.metastore, "shop.orders", limit=2)
    }
    assert artifacts == {"commit": "SUCCESS", "cut": "SUCCESS"}


def test_a_stopped_table_holds_nobody_up_and_its_cuts_come_when_it_has_caught_up(world):
    first = commit_together(world, "shop.items", "shop.orders", path="1")
    mirror = world.mirror()
    mirror.settle(patience_s=5)
    pause(world.metastore, "shop.orders", "a test")
    torn = commit_together(world, "shop.items", "shop.orders", path="2")
    later = commit_together(world, "shop.items", "shop.stock", path="3")
    mirror.settle(patience_s=5)

    assert world.state("shop.items").mirrored_version == later["shop.items"]
    assert newest_cut(world, "shop.items") == later
    assert newest_cut(world, "shop.orders") == first
    found = read_cut(world.metastore, ["shop.items", "shop.orders"])
    assert {t.table: t.version for t in found.tables} == first
    (incomplete,) = found.incomplete
    assert incomplete.published == {"shop.items": torn["shop.items"]}
    assert incomplete.missing == {"shop.orders": torn["shop.orders"]}

    resume(world.metastore, "shop.orders")
    mirror.settle(patience_s=5)

    assert newest_cut(world, "shop.orders") == torn
    assert cut_in_sql(world, "shop.items", "shop.orders") == {
        "shop.items": later["shop.items"],
        "shop.orders": torn["shop.orders"],
    }
    assert read_cut(world.metastore).incomplete == ()


def test_what_one_torn_commit_takes_out_of_a_cut_takes_later_ones_along(world):
    commit_together(world, "shop.items", "shop.orders", path="1")
    world.mirror().settle(patience_s=5)
    pause(world.metastore, "shop.stock", "a test")
    commit_together(world, "shop.orders", "shop.stock", path="2")
    commit_together(world, "shop.items", "shop.orders", path="3")
    world.mirror().settle(patience_s=5)

    assert cut_in_sql(world) == {"shop.items": 1, "shop.orders": 1, "shop.stock": 0}
    assert cut_in_sql(world, "shop.items", "shop.orders") == {"shop.items": 2, "shop.orders": 3}


def test_a_cut_that_a_crash_left_owing_is_written_by_the_next_run(world):
    versions = commit_together(world, "shop.items", "shop.orders")
    world.mirror().engine.run_until_idle()
    assert newest_cut(world, "shop.items") is None

    world.mirror().settle(patience_s=5)

    assert newest_cut(world, "shop.items") == newest_cut(world, "shop.orders") == versions


def test_a_foreign_file_in_a_cuts_place_is_left_alone_and_said(world):
    versions = commit_together(world, "shop.items", "shop.orders")
    world.store("shop.items").put_if_absent(CutName(1), b"{}\n")
    world.mirror().settle(patience_s=5)

    assert world.store("shop.items").read(CutName(1)) == b"{}\n"
    assert newest_cut(world, "shop.orders") == versions
    (cut,) = [
        v
        for v in read_version_states(world.metastore, "shop.items", limit=3)
        if v.artifact == "cut"
    ]
    assert (cut.status, cut.reason_code) == ("FAILED", "conflict_external")
    assert world.state("shop.items").state == "OK"


class Recording:
    """A store that notes what it is asked to create, and fails where it is told to."""

    def __init__(self, inner, seen, failing=()):
        self.inner, self.seen, self.failing = inner, seen, failing

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def put_if_absent(self, path, data, **options):
        table = self.inner.location.path.rpartition("/")[2]
        self.seen.append((table, path.name))
        if (table, path.name) in self.failing:
            raise StoreUnavailableError("gone for a moment")
        return self.inner.put_if_absent(path, data, **options)


def test_the_versions_of_a_group_are_put_back_to_back_behind_a_backlog(world):
    world.mirror().settle(patience_s=5)
    for number in range(20):
        commit(world.metastore, "shop.items", add(f"f-{number}"))
    commit_together(world, "shop.items", "shop.orders")
    seen: list[tuple[str, str]] = []
    mirror = world.mirror(
        open_log=lambda place: Recording(open_store(place, world.options, allowed_roots=()), seen),
        settings=EngineSettings(threads=4),
    )
    mirror.settle(patience_s=5)

    commits = [put for put in seen if "_cuts" not in put[1]]
    assert set(commits[-2:]) == {
        ("shop.items", CommitName(21).name),
        ("shop.orders", CommitName(1).name),
    }


def test_a_participant_that_fails_does_not_take_the_others_along(world):
    commit_together(world, "shop.items", "shop.orders")
    versions = commit_together(world, "shop.items", "shop.stock", path="g")
    failing = [("shop.orders", CommitName(1).name)]
    mirror = world.mirror(
        open_log=lambda place: Recording(
            open_store(place, world.options, allowed_roots=()), [], failing
        )
    )
    mirror.run_once()

    assert newest_cut(world, "shop.stock") == newest_cut(world, "shop.items") == versions
    assert world.state("shop.orders").state == "FAILED"
    failing.clear()
    world.forget_wait()
    mirror.run_once()
    assert newest_cut(world, "shop.orders") == {"shop.items": 1, "shop.orders": 1}
