"""A table's life in what speaks the protocols of Azure and Google: the mirror needs no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta.log_paths import CommitName, LastCheckpoint
from mirror_assets.findings import Severity
from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets_tests.builders import a_metastore, add, commit
from mirror_assets_tests.cloud_stand_ins import Azure, Gcs, running
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets_tests.cloud_stand_ins import Cloud

TABLE = "db.t"


@pytest.fixture(params=[Azure, Gcs])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    cloud: Cloud
    with (
        running(request.param()) as cloud,
        a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore,
    ):
        yield World(metastore, *cloud.place("lake"))


def test_a_table_is_published_checkpointed_and_mended(world: World) -> None:
    name = world.table(TABLE, commits=12, configuration={"delta.checkpointInterval": "4"})
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    assert isinstance(mirror.checkpoints.run_due()[name], BuiltCheckpoint)
    world.assert_mirrored(name)
    store = world.store(name)
    assert store.size(LastCheckpoint())
    store.delete(CommitName(5))
    report = reconcile(world.metastore, store, name, Mode.FULL, apply=True)
    assert [(repair.version, repair in report.applied) for repair in report.plan] == [(5, True)]
    after = reconcile(world.metastore, store, name, Mode.FULL)
    assert [found for found in after.findings if found.severity is Severity.ERROR] == []
    world.assert_mirrored(name)


def test_foreign_content_is_met_and_left_alone(world: World) -> None:
    name = world.table(TABLE, commits=1)
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    world.foreign(name, 2)
    commit(world.metastore, name, add("ours"))
    mirror.engine.run_until_idle()
    assert world.state(name).state == "DIVERGED"
    assert world.store(name).read(CommitName(2)) == b'{"commitInfo":{}}\n'
