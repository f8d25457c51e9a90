"""The whole platform once: a real webserver, daemon and code server, asked by GraphQL."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from mirror_assets.defs.follower_run import ROLE, FollowerName
from mirror_assets.defs.keys import TableKeys
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.followers import read_followers
from mirror_assets.metastore.role_lease import RoleLease
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.defs.dagster_dev import DagsterDev, dagster_dev, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.defs.platform import Platform

TABLE = ["sales", "orders"]
LOG = [*TABLE, "delta_log"]
PATIENCE_S = 120


def green(dev: DagsterDev) -> int:
    return int(dev.node([*TABLE, "commits"])["partitionStats"]["numMaterialized"])


def are_green(dev: DagsterDev) -> bool:
    return all(check["success"] for check in dev.checks(LOG).values())


def active(metastore: Metastore) -> FollowerName | None:
    found = [beat for beat in read_followers(metastore) if "commits" in beat.detail]
    return FollowerName.parse(found[0].owner) if found else None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_appear_turn_green_are_checked_and_survive_a_kill(
    platform: Platform, tmp_path: Path
) -> None:
    home = tmp_path / "dagster_home"
    absent = f"sqlite:///{tmp_path / 'later.db'}"
    with dagster_dev(home, MIRROR_METASTORE_URL=absent) as dev:
        assert dev.assets() == {"platform/metastore", "platform/object_store"}
        said = wait_for(
            lambda: dev.ticks("sql_versions")[0]["skipReason"], PATIENCE_S, "the sensor's tick"
        )
        assert "there is no metastore" in said
        with a_metastore(absent) as metastore:
            # Nobody else may publish while a person backfills: the test holds the followers' role.
            role = RoleLease(metastore=metastore, role=ROLE, owner="test", lease_ms=600_000)
            assert role.hold()
            platform.metastore = metastore
            keys = platform.table("sales.orders", commits=12)
            _appears(dev)
            _backfills(dev, platform)
            role.release()
            wait_for(lambda: green(dev) == 13, PATIENCE_S, "the follower to publish the rest")
            _is_fresh_and_checked(dev)
            _shows_what_is_wrong_until_it_is_repaired(dev, platform)
            _survives_a_kill(dev, platform)
            platform.world.assert_mirrored(keys.table)


def _appears(dev: DagsterDev) -> None:
    wait_for(lambda: "sales/orders/commits" in dev.assets(), PATIENCE_S, "the table to appear")
    # By the first look at the registry after it was made: one every fifteen seconds, and a reload.
    asked = [t["skipReason"] or "" for t in dev.ticks("registry")]
    assert [words for words in asked if "reloaded" in words] == [
        "0 tables are shown; reloaded for ['sales.orders']: done"
    ]
    wait_for(
        lambda: dev.node([*TABLE, "commits"])["partitionStats"]["numPartitions"] == 13,
        PATIENCE_S,
        "a partition per version",
    )


def _backfills(dev: DagsterDev, platform: Platform) -> None:
    dev.backfill([*TABLE, "commits"], ["3", "4", "5", "9"])
    wait_for(lambda: green(dev) == 10, PATIENCE_S, "everything up to 9")
    assert platform.world.state("sales.orders").mirrored_version == 9


def _is_fresh_and_checked(dev: DagsterDev) -> None:
    """Without a person."""
    wait_for(lambda: dev.checks(LOG), PATIENCE_S, "the first checks")
    wait_for(lambda: are_green(dev), PATIENCE_S, "green checks")
    assert len(dev.checks(LOG)) == 6
    wait_for(lambda: dev.freshness([*TABLE, "mirror_lag"]) == "HEALTHY", PATIENCE_S, "freshness")
    assert dev.numbers([*TABLE, "mirror_lag"]).keys() >= {"lag_seconds", "lag_versions"}
    assert dev.numbers([*TABLE, "commits"]).keys() >= {"lag_seconds", "commit_file_bytes"}


def _shows_what_is_wrong_until_it_is_repaired(dev: DagsterDev, platform: Platform) -> None:
    file = platform.root / "sales.orders" / "_delta_log" / CommitName(4).name
    content = file.read_bytes()
    file.unlink()
    dev.materialize(LOG)
    wait_for(lambda: not are_green(dev), PATIENCE_S, "the check to fail")
    failed = dev.checks(LOG)["gapless"]
    (table,) = [e for e in failed["metadataEntries"] if e["__typename"] == "TableMetadataEntry"]
    (finding,) = [json.loads(record) for record in table["table"]["records"]]
    assert (finding["rule"], finding["version"]) == ("DL-FILE-03", 4)
    config = {"tables": ["sales.orders"], "apply": True}
    run = dev.launch("reconcile", {"ops": {"reconcile_tables": {"config": config}}})
    wait_for(lambda: dev.status(run) == "SUCCESS", PATIENCE_S, "the repair")
    assert file.read_bytes() == content
    dev.materialize(LOG)
    wait_for(lambda: are_green(dev), PATIENCE_S, "green checks again")


def _survives_a_kill(dev: DagsterDev, platform: Platform) -> None:
    metastore = platform.metastore
    wait_for(lambda: len(read_followers(metastore)) == 2, PATIENCE_S, "a standby")
    first = wait_for(lambda: active(metastore), PATIENCE_S, "an active follower")
    os.kill(first.pid, signal.SIGKILL)
    version = platform.world.state("sales.orders").head_version + 1
    platform.commit(TableKeys("sales.orders"), version)
    wait_for(
        lambda: platform.world.state("sales.orders").mirrored_version == version,
        PATIENCE_S,
        "the standby to publish",
    )
    wait_for(lambda: green(dev) == version + 1, PATIENCE_S, "its report")
    assert active(metastore) != first


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_ends_everything(platform: Platform, tmp_path: Path) -> None:
    platform.table("sales.orders", commits=1)
    with dagster_dev(tmp_path / "dagster_home") as dev:
        wait_for(lambda: len(read_followers(platform.metastore)) == 2, PATIENCE_S, "followers")
        dev.interrupt()
        wait_for(lambda: not dev.processes(), PATIENCE_S, "every process to end")
    assert read_followers(platform.metastore) == [], "the followers took their leave"
