"""The instance that deploy/dagster.production.yaml describes, on a real PostgreSQL and S3."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest
from sqlalchemy import URL, make_url

from mirror_assets_tests.defs.dagster_dev import dagster_dev, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_assets_tests.defs.platform import Platform
    from mirror_assets_tests.store_services import S3Server

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "dagster.production.yaml"
MATERIALIZATIONS = (
    "select count(*) from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION'"
)
PATIENCE_S = 240


@pytest.fixture
def database(
    postgres_url: Callable[[], str], seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> URL:
    """Where runs and events land; the environment says what the file needs."""
    database = make_url(postgres_url())
    for name, value in {
        "DAGSTER_PG_HOST": str(database.host),
        "DAGSTER_PG_PORT": str(database.port),
        "DAGSTER_PG_USER": str(database.username),
        "DAGSTER_PG_PASSWORD": str(database.password),
        "DAGSTER_PG_DB": str(database.database),
        "DAGSTER_LOG_BUCKET": seaweedfs.bucket,
        "DAGSTER_LOG_ENDPOINT": seaweedfs.endpoint,
        "DAGSTER_EVENT_BATCH_SIZE": "100",
        "AWS_ACCESS_KEY_ID": seaweedfs.access_key,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_key,
    }.items():
        monkeypatch.setenv(name, value)
    return database


@pytest.mark.slow
@pytest.mark.xdist_group("seaweedfs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore")
def test_runs_events_and_logs_land_in_postgres_and_s3(
    platform: Platform, database: URL, seaweedfs: S3Server, tmp_path: Path
) -> None:
    home = tmp_path / "production"
    home.mkdir()
    shutil.copy(CONFIG, home / "dagster.yaml")
    keys = platform.table(commits=12)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        platform.instance = instance
        platform.add_keys(keys, 12)
        done = platform.backfill(keys, 12, 12)
        assert done.success
        assert platform.green(keys.commits) == list(range(13)), "in batches"
        assert platform.metadata(keys.commits, 3)["version"] == 3
    assert count(database, "select count(*) from runs") == 1
    assert count(database, MATERIALIZATIONS) == 13
    assert any(done.run_id in name for name in logs(seaweedfs))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("seaweedfs")
@pytest.mark.parametrize("drive", ["follower", "runs"])
def test_a_real_dagster_mirrors_and_checks_on_postgres_and_s3(
    platform: Platform, database: URL, seaweedfs: S3Server, tmp_path: Path, drive: str
) -> None:
    home = tmp_path / "dagster_home"
    keys = platform.table(commits=12)
    path, log = list(keys.commits.path), list(keys.delta_log.path)
    with dagster_dev(home, config=CONFIG, MIRROR_DRIVE=drive) as dev:
        wait_for(
            lambda: dev.node(path)["partitionStats"]["numMaterialized"] == 13,
            PATIENCE_S,
            "a green partition for each version",
        )
        platform.commit(keys, 13)
        wait_for(
            lambda: dev.node(path)["partitionStats"]["numMaterialized"] == 14,
            PATIENCE_S,
            "what was committed since",
        )
        wait_for(
            lambda: all(check["success"] for check in dev.checks(log).values()),
            PATIENCE_S,
            "the checks, which nobody asked for",
        )
        lag = list(keys.mirror_lag.path)
        wait_for(lambda: dev.freshness(lag) == "HEALTHY", PATIENCE_S, "freshness")
        (checked,) = [r for r in dev.runs() if r["jobName"] == "conformance"]
        run_id = checked["runId"]
        wait_for(lambda: dev.status(run_id) == "SUCCESS", PATIENCE_S, "the checks to end")
        wait_for(
            lambda: any(run_id in name for name in logs(seaweedfs)), PATIENCE_S, "their output"
        )
    platform.world.assert_mirrored(keys.table)
    commits = MATERIALIZATIONS.replace("count(*)", "count(distinct partition)")
    assert count(database, commits + " and asset_key like '%commits%'") == 14
    followers = count(database, "select count(*) from runs where pipeline_name = 'follow'")
    assert bool(followers) == (drive == "follower")


def count(database: URL, query: str) -> int:
    dsn = database.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn) as connection:
        (found,) = connection.execute(query).fetchone()
    return found


def logs(seaweedfs: S3Server) -> list[str]:
    listed = seaweedfs.boto3().list_objects_v2(Bucket=seaweedfs.bucket, Prefix="dagster/")
    return [item["Key"] for item in listed.get("Contents", [])]
