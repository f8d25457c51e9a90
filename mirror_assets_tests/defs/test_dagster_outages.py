"""A real Dagster whose processes are killed and whose store hangs: it comes back by itself."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from mirror_assets.defs.keys import TableKeys
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.outcomes import Committed
from mirror_assets_tests.defs.dagster_dev import DagsterDev, dagster_dev, wait_for
from mirror_assets_tests.faults.http_proxy import FaultProxy, Hang, fault_proxy
from mirror_assets_tests.faults.processes import a_writer, s3_environment
from mirror_assets_tests.faults.store_history import created, violations
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.defs.platform import Platform
    from mirror_assets_tests.store_services import S3Server

PATIENCE_S = 180
BUSY, IDLE = "sales.orders", "sales.archive"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("seaweedfs")
def test_publishing_goes_on_after_everything_was_killed_and_after_the_store_hung(
    platform: Platform, tmp_path: Path, seaweedfs: S3Server, webserver: tuple[str, list[Any]]
) -> None:
    webhook, posted = webserver
    root = f"s3://{seaweedfs.bucket}/{uuid.uuid4()}"
    world = World(platform.metastore, root, seaweedfs.options())
    home = tmp_path / "dagster_home"
    world.table(BUSY)
    world.table(IDLE)
    with fault_proxy(seaweedfs.endpoint) as proxy:
        environment = {
            **s3_environment(seaweedfs, root, proxy.endpoint),
            "MIRROR_STORE_REQUEST_TIMEOUT": "2",
            "MIRROR_LAG_OBJECTIVE": "5",
            "MIRROR_FRESHNESS_WARN": "60",
            "MIRROR_FRESHNESS_FAIL": "90",
            "MIRROR_ALERT_WEBHOOK": webhook,
            "MIRROR_ALERT_SECONDS": "5",
            "FRESHNESS_DAEMON_INTERVAL_SECONDS": "2",
        }
        with a_writer(world, [BUSY], 0.1) as outcomes, dagster_dev(home, **environment) as dev:
            # What is under way when they die has its effect, and they do not hear of it.
            proxy.script("PUT", *[None] * 20, *[Hang(seconds=3_600, stored=True)] * 2)
            wait_for(lambda: proxy.count("PUT") > 20, PATIENCE_S, "publishing to begin")
            assert dev.kill() >= 5, "webserver, daemon, code server and follower runs"
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert world.state(BUSY).lag_versions > 0, "it was killed in the middle"
        with dagster_dev(home, **environment) as dev:
            _publishes_the_rest(dev, world)
            _tells_of_a_store_that_hangs(dev, world, proxy, posted)
        operations = [found for found in proxy.history if found.table in (BUSY, IDLE)]
    world.assert_mirrored(BUSY, IDLE)
    assert violations(operations) == []
    frozen = {
        (name, commit.version): commit.sha256
        for name in (BUSY, IDLE)
        for commit in LogReader(world.metastore).commits(name)
    }
    assert created(operations) == frozen


def _publishes_the_rest(dev: DagsterDev, world: World) -> None:
    """Without a person: the runs that died are found dead, and others take their place."""
    commits = TableKeys(BUSY).commits.path
    wait_for(lambda: world.state(BUSY).lag_versions == 0, PATIENCE_S, "the rest")
    head = world.state(BUSY).head_version
    wait_for(
        lambda: dev.node(list(commits))["partitionStats"]["numMaterialized"] == head + 1,
        PATIENCE_S,
        "a green partition for each version",
    )


def _tells_of_a_store_that_hangs(
    dev: DagsterDev, world: World, proxy: FaultProxy, posted: list[dict[str, Any]]
) -> None:
    busy, idle = (TableKeys(name).mirror_lag for name in (BUSY, IDLE))
    for key in (busy, idle):
        wait_for(lambda key=key: dev.freshness(list(key.path)) == "HEALTHY", PATIENCE_S, "health")
    quiet_since = _last_change(dev, idle)
    seen = len(_told(posted))
    proxy.always = Hang(seconds=3_600)
    assert isinstance(_commit(world), Committed), "a commit does not wait for the store"
    for state in ("WARNING", "DEGRADED"):
        wait_for(lambda state=state: dev.freshness(list(busy.path)) == state, PATIENCE_S, state)
    wait_for(lambda: len(_told(posted)) == seen + 2, PATIENCE_S, "the alerts")
    proxy.always = None
    wait_for(lambda: dev.freshness(list(busy.path)) == "HEALTHY", PATIENCE_S, "health again")
    wait_for(lambda: len(_told(posted)) == seen + 3, PATIENCE_S, "the good news")
    subject = busy.to_user_string()
    assert _told(posted)[seen:] == [(subject, "warn"), (subject, "fail"), (subject, "pass")]
    assert _last_change(dev, idle) == quiet_since, "an idle table stays fresh"


def _told(posted: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(a["subject"], a["state"]) for a in posted if a.get("kind") == "freshness"]


def _last_change(dev: DagsterDev, key: dg.AssetKey) -> tuple[str, Any]:
    """The state of freshness, and when it came to be so."""
    with dg.DagsterInstance.from_config(str(dev.home)) as instance:
        record = instance.get_freshness_state_records([key])[key]
    return record.freshness_state.value, record.updated_at


def _commit(world: World) -> Any:
    with a_writer(world, [BUSY], 0.01) as outcomes:
        wait_for(lambda: outcomes, PATIENCE_S, "a commit")
    return outcomes[0]
