"""A version checksum for every version, for those who want it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from mirror_assets.delta.log_paths import VersionChecksum
from mirror_assets.delta.version_checksum import parse_version_checksum
from mirror_assets.errors import StoreUnavailableError
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.mirror.mirroring import Flaky, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


def test_every_version_gets_one_that_says_what_sql_says(world):
    name = world.table("db.t", commits=3)
    world.mirror(checksums=True).settle(patience_s=5)

    reader, store = LogReader(world.metastore), world.store(name)
    for version in range(4):
        claimed = parse_version_checksum(store.read(VersionChecksum(version)))
        state = reader.summary(name, version)
        assert (claimed.num_files, claimed.metadata) == (state.num_files, state.metadata)
    assert DeltaTable(world.location(name)).version() == 3


def test_by_default_only_checkpoints_have_one(world):
    name = world.table("db.t", commits=3)
    world.mirror().settle(patience_s=5)

    assert not world.store(name).list().checksums


def test_one_that_cannot_be_written_harms_nothing(world):
    name = world.table("db.t")
    store = Flaky(world.store(name), script=[None, StoreUnavailableError("away")])
    with capture_logs() as logs:
        world.flaky_mirror(store, checksums=True).settle(patience_s=5)

    world.assert_mirrored(name)
    assert [entry["event"] for entry in logs] == ["checksum_failed"]
