"""The engine on real databases and stores: order, exactly once, and the named states."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_queue import ClaimResult, Failure, MirrorQueue
from mirror_assets.metastore.mirror_state import pause, read_version_states, resume
from mirror_assets.mirror.engine import EngineSettings
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore, add, commit
from mirror_assets_tests.mirror.mirroring import Flaky, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore

STORES = [
    "memory",
    "local",
    pytest.param("seaweedfs", marks=pytest.mark.xdist_group("seaweedfs")),
]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def metastore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Metastore]:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")()
    with a_metastore(url) as opened:
        yield opened


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, metastore: Metastore, tmp_path: Path) -> World:
    match request.param:
        case "memory":
            return World(metastore, f"memory://tests/{uuid.uuid4()}", StoreOptions())
        case "local":
            return World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))
        case _:
            server = request.getfixturevalue("seaweedfs")
            root = f"s3://{server.bucket}/{uuid.uuid4()}"
            return World(metastore, root, server.options())


@pytest.fixture
def disk(metastore: Metastore, tmp_path: Path) -> World:
    return World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


def test_all_versions_are_published_in_order_and_once(world: World) -> None:
    names = [world.table(f"db.t{number}", commits=number) for number in range(4)]
    results = world.mirror().engine.run_until_idle()
    for result in results:
        versions = [published.version for published in result.published]
        assert versions == list(range(versions[0], versions[-1] + 1))
        assert {published.resolved_by for published in result.published} == {"put"}
    world.assert_mirrored(*names)
    assert world.mirror().engine.run_until_idle() == []


def test_a_file_left_by_a_crashed_run_is_adopted(world: World) -> None:
    name = world.table("db.t", commits=3)
    for made in LogReader(world.metastore).commits(name, 0, 1):
        world.store(name).put_if_absent(CommitName(made.version), made.encode(name))
    (result,) = world.mirror().engine.run_until_idle()
    assert [p.resolved_by for p in result.published] == ["readback", "readback", "put", "put"]
    world.assert_mirrored(name)


def test_foreign_content_stops_the_table_and_no_other(world: World) -> None:
    bad, good = world.table("db.bad", commits=2), world.table("db.good", commits=2)
    world.foreign(bad, 1)
    world.mirror().engine.run_until_idle()
    state = world.state(bad)
    assert (state.state, state.last_error is None) == ("DIVERGED", False)
    assert world.store(bad).read(CommitName(1)) == b'{"commitInfo":{}}\n'
    assert world.store(bad).size(CommitName(2)) is None
    world.assert_mirrored(good)
    assert world.mirror().engine.run_until_idle() == []


def test_a_table_that_another_worker_published_is_looked_at_again(disk: World) -> None:
    name = disk.table("db.t", commits=1)
    first, second = disk.mirror(), disk.mirror()
    first.engine.run_until_idle()
    commit(disk.metastore, name, add("g.parquet"))
    second.engine.run_until_idle()
    disk.store(name).delete(CommitName(2))
    commit(disk.metastore, name, add("h.parquet"))
    first.engine.run_until_idle()
    assert (disk.state(name).state, disk.state(name).reason) == ("FAILED", "gap")


def test_a_new_table_is_looked_at_before_its_second_version(world: World) -> None:
    name = world.table("db.t")
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    world.foreign(name, 7)
    commit(world.metastore, name, add("f.parquet"))
    mirror.engine.run_until_idle()
    assert world.state(name).state == "AHEAD"
    assert world.store(name).read(CommitName(1)) is None


def test_a_log_that_is_ahead_is_noticed_before_anything_is_published(world: World) -> None:
    name = world.table("db.t", commits=2)
    world.foreign(name, 7)
    world.mirror().engine.run_until_idle()
    assert world.state(name).state == "AHEAD"
    assert list(world.store(name).list().commits) == [7]


def test_an_empty_file_in_the_way_is_foreign_content(world: World) -> None:
    name = world.table("db.t", commits=1)
    world.foreign(name, 1, b"")
    world.mirror().engine.run_until_idle()
    assert world.state(name).state == "DIVERGED"


def test_a_published_file_that_is_gone_is_a_named_failure(world: World) -> None:
    name = world.table("db.t", commits=1)
    world.mirror().engine.run_until_idle()
    world.store(name).delete(CommitName(1))
    commit(world.metastore, name, add("later.parquet"))
    world.mirror().engine.run_until_idle()
    state = world.state(name)
    assert (state.state, state.reason, state.mirrored_version) == ("FAILED", "gap", 1)
    assert world.store(name).size(CommitName(2)) is None


def test_a_broken_row_is_quarantined_and_stops_no_other_table(disk: World) -> None:
    bad, good = disk.table("db.bad", commits=2), disk.table("db.good", commits=2)
    with disk.metastore.write() as connection:
        connection.exec_driver_sql(
            "update dl_add_files set partition_values = '{not json' where version = 2"
            " and table_id = (select table_id from dl_tables where name = 'db.bad')"
        )
    disk.mirror().engine.run_until_idle()
    disk.assert_mirrored(good)
    state = disk.state(bad)
    assert (state.state, state.mirrored_version) == ("QUARANTINED", 1)
    assert list(disk.store(bad).list().commits) == [0, 1]


def test_rows_that_give_other_bytes_are_quarantined(disk: World) -> None:
    name = disk.table("db.t", commits=1)
    with disk.metastore.write() as connection:
        connection.exec_driver_sql("update dl_add_files set size = size + 1")
    disk.mirror().engine.run_until_idle()
    assert disk.state(name).state == "QUARANTINED"
    assert list(disk.store(name).list().commits) == [0]


def test_a_version_missing_in_sql_is_quarantined(disk: World) -> None:
    name = disk.table("db.t", commits=3)
    disk.mirror().engine.run_until_idle(to_version=1)
    with disk.metastore.write() as connection:
        connection.exec_driver_sql("delete from dl_table_versions where version = 2")
    disk.mirror().engine.run_until_idle()
    assert disk.state(name).state == "QUARANTINED"
    assert list(disk.store(name).list().commits) == [0, 1]


def test_to_version_is_the_last_one_published(disk: World) -> None:
    name = disk.table("db.t", commits=5)
    mirror = disk.mirror()
    mirror.engine.run_until_idle(to_version=2)
    assert disk.state(name).mirrored_version == 2
    assert mirror.engine.run_until_idle(to_version=2) == []
    mirror.engine.run_until_idle()
    disk.assert_mirrored(name)


def test_a_paused_table_waits_until_it_is_resumed(disk: World) -> None:
    name = disk.table("db.t", commits=1)
    assert pause(disk.metastore, name, "for a test") == {name: "PAUSED"}
    assert disk.mirror().engine.run_until_idle() == []
    state = disk.state(name)
    assert (state.state, state.reason, state.lag_versions) == ("PAUSED", "for a test", 2)
    assert resume(disk.metastore, None) == {name: "OK"}
    disk.mirror().engine.run_until_idle()
    disk.assert_mirrored(name)


def test_a_resumed_table_is_looked_at_anew(disk: World) -> None:
    name = disk.table("db.t", commits=1)
    disk.foreign(name, 1)
    disk.mirror().engine.run_until_idle()
    assert pause(disk.metastore, name, "no") == {name: "DIVERGED"}
    resume(disk.metastore, name)
    disk.mirror().engine.run_until_idle()
    assert disk.state(name).state == "DIVERGED"
    disk.store(name).delete(CommitName(1))
    resume(disk.metastore, name)
    disk.mirror().engine.run_until_idle()
    disk.assert_mirrored(name)


def test_a_worker_that_slept_past_its_lease_records_nothing(disk: World) -> None:
    name = disk.table("db.t", commits=2)
    queue = MirrorQueue(disk.metastore)
    asleep = queue.claim("asleep", tables=None, limit=10, lease_ms=0)
    other = disk.mirror().engine.run_until_idle()
    assert [len(result.published) for result in other] == [3]
    late = ClaimResult(
        claim=asleep[0], failure=Failure(version=0, reason_code="transient", message="late")
    )
    assert queue.record([late]) == asleep
    disk.assert_mirrored(name)
    assert disk.state(name).last_error is None


def test_a_claim_is_renewed_while_a_slow_write_goes_on(disk: World) -> None:
    name = disk.table("db.t")
    rival: list[int] = []
    queue = MirrorQueue(disk.metastore)

    def try_to_take_over() -> None:
        time.sleep(1.2)
        rival.append(len(queue.claim("rival", tables=None, limit=9, lease_ms=500)))

    store = Flaky(disk.store(name), before=try_to_take_over)
    settings = EngineSettings(lease_ms=600)
    disk.flaky_mirror(store, settings=settings).engine.run_until_idle()
    assert rival == [0]
    disk.assert_mirrored(name)


def test_a_long_backlog_goes_in_batches_of_bounded_size(disk: World) -> None:
    name = disk.table("db.t", commits=25)
    settings = EngineSettings(versions=10)
    results = disk.mirror(settings=settings).engine.run_until_idle()
    assert [len(result.published) for result in results] == [10, 10, 6]
    disk.assert_mirrored(name)
    small = disk.table("db.small", commits=9)
    bounded = disk.mirror(settings=EngineSettings(batch_bytes=1_500)).engine
    assert len(bounded.run_until_idle([small])) > 2
    disk.assert_mirrored(small)


def test_every_version_of_every_status_row_tells_how_late_it_was(disk: World) -> None:
    name = disk.table("db.t", commits=3)
    disk.mirror().engine.run_until_idle()
    rows = read_version_states(disk.metastore, name, limit=10)
    assert [row.version for row in rows] == [3, 2, 1, 0]
    assert all(row.lag_ms is not None and row.lag_ms >= 0 for row in rows)
    state = disk.state(name)
    assert state.publish_p50_ms is not None
    assert state.publish_p50_ms <= (state.publish_p95_ms or 0)


def test_deltalake_reads_every_version(disk: World) -> None:
    name = disk.table("db.t", commits=12)
    disk.mirror().engine.run_until_idle()
    table = DeltaTable(disk.location(name))
    for version in range(13):
        table.load_as_version(version)
        assert len(table.file_uris()) == version


@pytest.mark.slow
def test_a_commit_of_many_files_goes_through_a_file(disk: World) -> None:
    name = disk.table("db.t")
    commit(disk.metastore, name, *(add(f"f-{number}.parquet") for number in range(200_000)))
    settings = EngineSettings(batch_bytes=1_000_000)
    disk.mirror(settings=settings).engine.run_until_idle()
    assert disk.state(name).state == "OK"
    disk.assert_mirrored(name)
    assert len(DeltaTable(disk.location(name)).file_uris()) == 200_000
