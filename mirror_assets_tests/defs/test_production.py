"""The instance that deploy/dagster.production.yaml describes, on a real PostgreSQL and S3."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest
from sqlalchemy import make_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_assets_tests.defs.platform import Platform
    from mirror_assets_tests.store_services import S3Server

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "dagster.production.yaml"


@pytest.mark.slow
@pytest.mark.xdist_group("seaweedfs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore")
def test_runs_events_and_logs_land_in_postgres_and_s3(
    platform: Platform,
    postgres_url: Callable[[], str],
    seaweedfs: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = make_url(postgres_url())
    for name, value in {
        "DAGSTER_PG_HOST": url.host,
        "DAGSTER_PG_PORT": str(url.port),
        "DAGSTER_PG_USER": url.username,
        "DAGSTER_PG_PASSWORD": url.password,
        "DAGSTER_PG_DB": url.database,
        "DAGSTER_LOG_BUCKET": seaweedfs.bucket,
        "DAGSTER_LOG_ENDPOINT": seaweedfs.endpoint,
        "DAGSTER_EVENT_BATCH_SIZE": "100",
        "AWS_ACCESS_KEY_ID": seaweedfs.access_key,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_key,
    }.items():
        monkeypatch.setenv(name, value)
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
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn) as connection:
        (runs,) = connection.execute("select count(*) from runs").fetchone()
        (events,) = connection.execute(
            "select count(*) from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION'"
        ).fetchone()
    assert (runs, events) == (1, 13)
    listed = seaweedfs.boto3().list_objects_v2(Bucket=seaweedfs.bucket, Prefix="dagster/")
    names = [item["Key"] for item in listed.get("Contents", [])]
    assert any(done.run_id in name for name in names), names
