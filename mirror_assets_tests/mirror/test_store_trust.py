"""Stores that ignore conditions: refused by every mirror, until an operator answers for them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.mirror_state import read_version_states, resume
from mirror_assets.metastore.store_facts import StoreFacts, read_store_facts, remember_store
from mirror_assets.mirror import store_trust
from mirror_assets_tests.builders import a_metastore, add, commit
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.store_services import S3Server


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as opened:
        yield opened


def world_in(metastore: Metastore, server: S3Server) -> World:
    return World(metastore, f"s3://{server.bucket}/{uuid.uuid4()}", server.options())


def reasons(world: World, name: str) -> set[str | None]:
    return {v.reason_code for v in read_version_states(world.metastore, name, limit=10)}


def test_a_store_that_ignores_conditions_is_refused_and_all_mirrors_know(metastore, rclone_s3):
    world = world_in(metastore, rclone_s3)
    world.table("sales.a", commits=3)
    world.mirror().settle(["sales.a"], patience_s=5)
    world.table("sales.b")
    world.mirror().settle(["sales.b"], patience_s=5)

    state = world.state("sales.a")
    assert (state.state, state.mirrored_version) == ("PAUSED", -1)
    assert "store_unsafe" in reasons(world, "sales.a")
    assert f'single_writer = ["s3://{rclone_s3.bucket}"]' in state.reason
    assert world.state("sales.b").state == "PAUSED"
    assert world.store("sales.b").list().is_empty


def test_an_operator_may_accept_it_and_foreign_files_are_still_seen(metastore, rclone_s3):
    world = world_in(metastore, rclone_s3)
    world.table("sales.a", commits=1)
    world.mirror().settle(patience_s=5)
    mirror = world.mirror(single_writer=[f"s3://{rclone_s3.bucket}"])
    resume(metastore, "sales.a")
    mirror.settle(patience_s=5)
    world.assert_mirrored("sales.a")

    foreign = b'{"commitInfo":{}}\n'
    world.foreign("sales.a", 2, foreign)
    commit(metastore, "sales.a", add("g.parquet"))
    mirror.settle(patience_s=5)

    assert world.state("sales.a").state == "DIVERGED"
    assert world.store("sales.a").read(CommitName(2)) == foreign


@pytest.mark.xdist_group("seaweedfs")
def test_a_safe_store_is_proven_once_and_remembered(metastore, seaweedfs):
    world = world_in(metastore, seaweedfs)
    world.table("sales.a", commits=2)
    world.mirror().settle(patience_s=10)

    world.assert_mirrored("sales.a")
    facts = read_store_facts(metastore)[f"s3://{seaweedfs.bucket}"]
    assert (facts.safe, facts.found_by) == (True, "mirror")


def test_what_is_remembered_of_a_store_is_read_again(metastore, moto_s3, monkeypatch):
    world = world_in(metastore, moto_s3)
    world.table("sales.a", commits=1)
    mirror = world.mirror()
    mirror.settle(patience_s=5)
    remember_store(
        metastore,
        StoreFacts(
            store=f"s3://{moto_s3.bucket}",
            endpoint=moto_s3.endpoint,
            safe=False,
            found_by="verify-store",
            reason="2 of 5 races had several winners",
        ),
    )
    monkeypatch.setattr(store_trust, "_FRESH_S", 0)
    commit(metastore, "sales.a", add("g.parquet"))
    mirror.settle(patience_s=5)

    state = world.state("sales.a")
    assert (state.state, state.mirrored_version) == ("PAUSED", 1)
    assert "2 of 5 races" in state.reason


def test_a_store_behind_another_address_is_another_store(metastore, moto_s3):
    world = world_in(metastore, moto_s3)
    remember_store(
        metastore,
        StoreFacts(
            store=f"s3://{moto_s3.bucket}",
            endpoint="https://elsewhere.example",
            safe=False,
            found_by="verify-store",
        ),
    )
    world.table("sales.a", commits=1)
    world.mirror().settle(patience_s=5)

    world.assert_mirrored("sales.a")
